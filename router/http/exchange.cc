#include "router/http/exchange.h"

#include <chrono>
#include <utility>

#include "boost/asio/post.hpp"
#include "boost/asio/redirect_error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "common/log.h"
#include "common/log_limit.h"

namespace baton::router {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kBetweenWarnings{10};

}  // namespace

Exchange::Exchange(const asio::any_io_executor& strand, const asio::any_io_executor& pool,
                   int64_t max_unread_bytes)
    : wake_(strand), pool_(pool), max_unread_bytes_(static_cast<size_t>(max_unread_bytes)) {
  wake_.expires_at(asio::steady_timer::time_point::max());
}

template <typename Change>
void Exchange::Update(Change change) {
  std::function<void()> dropped;  // destroyed without the lock: it may own the last generation
  {
    MutexLock lock(mutex_);
    if (disconnected_ || finished_ || parts_.overrun) return;
    change(parts_);
    if (parts_.finished) {
      finished_ = true;
      dropped = std::exchange(on_disconnect_, nullptr);
    }
    if (std::exchange(wake_pending_, true)) return;
  }
  asio::post(wake_.get_executor(), [self = shared_from_this()] { self->wake_.cancel(); });
}

void Exchange::Respond(HttpResponse response) {
  Update([&](Parts& parts) {
    parts.head = std::move(response);
    parts.finished = true;
  });
}

void Exchange::StartStream(HttpResponse head) {
  Update([&](Parts& parts) {
    parts.head = std::move(head);
    parts.streamed = true;
  });
}

void Exchange::Write(std::string bytes) {
  Update([&](Parts& parts) {
    if (parts.bytes.empty() || parts.bytes.size() + bytes.size() <= max_unread_bytes_) {
      parts.bytes += bytes;
      return;
    }
    static LogLimit limit(1, kBetweenWarnings);
    if (const auto held_back = limit.Next()) {
      spdlog::warn(
          "a client reads too slowly: more than {} bytes wait for it, it is cut off ({} more)",
          max_unread_bytes_, *held_back);
    }
    parts = {};
    parts.overrun = true;
    // Not here: the generation that writes must not be called back.
    asio::post(wake_.get_executor(), [self = shared_from_this()] { self->Disconnect(); });
  });
}

void Exchange::Finish() {
  Update([](Parts& parts) { parts.finished = true; });
}

void Exchange::OnDisconnect(std::function<void()> on_disconnect) {
  {
    MutexLock lock(mutex_);
    if (finished_) return;
    if (!disconnected_) {
      on_disconnect_ = std::move(on_disconnect);
      return;
    }
  }
  on_disconnect();
}

void Exchange::Post(std::function<void()> work) { asio::post(pool_, std::move(work)); }

Exchange::Parts Exchange::Take() {
  MutexLock lock(mutex_);
  wake_pending_ = false;
  return std::exchange(parts_, {});
}

asio::awaitable<void> Exchange::Wait() {
  boost::system::error_code cancelled;
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

void Exchange::Wake() { wake_.cancel(); }

void Exchange::Disconnect() {
  std::function<void()> on_disconnect;
  {
    MutexLock lock(mutex_);
    disconnected_ = true;
    if (finished_) return;
    on_disconnect = std::exchange(on_disconnect_, nullptr);
  }
  if (on_disconnect) on_disconnect();
}

}  // namespace baton::router
