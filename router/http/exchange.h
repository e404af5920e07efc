#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/steady_timer.hpp"
#include "common/mutex.h"
#include "router/http/handler.h"

namespace baton::router {

// Carries an answer from any thread to the connection that writes it. The HttpReply side is
// thread-safe, the rest belongs to the connection's strand.
class Exchange final : public HttpReply, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const boost::asio::any_io_executor& strand, const boost::asio::any_io_executor& pool,
           int64_t max_unread_bytes);

  void Respond(HttpResponse response) override;
  void StartStream(HttpResponse head) override;
  void Write(std::string bytes) override;
  void Finish() override;
  void OnDisconnect(std::function<void()> on_disconnect) override;
  void Post(std::function<void()> work) override;

  // What came since the last call.
  struct Parts {
    std::optional<HttpResponse> head;
    bool streamed = false;  // `head` opens a stream
    std::string bytes;
    bool finished = false;
    bool overrun = false;  // the client let too much wait: nothing else is to be written

    bool Empty() const { return !head && bytes.empty() && !finished && !overrun; }
  };
  Parts Take();

  // Resumes when there may be something to take, or after Wake. To be called only right after Take
  // returned nothing: a wake-up during any other wait is lost.
  boost::asio::awaitable<void> Wait();
  void Wake();

  // The client is gone, or as good as gone.
  void Disconnect();

 private:
  // Applies `change` to what is to be taken, unless the client is gone, and wakes the connection.
  template <typename Change>
  void Update(Change change);

  boost::asio::steady_timer wake_;  // never expires; cancelled to wake
  const boost::asio::any_io_executor pool_;
  const size_t max_unread_bytes_;
  Mutex mutex_;
  Parts parts_ ABSL_GUARDED_BY(mutex_);
  bool wake_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool disconnected_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_disconnect_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
