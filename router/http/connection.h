#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "common/tls/stream.h"
#include "prometheus/counter.h"
#include "router/http/body_budget.h"
#include "router/http/exchange.h"
#include "router/http/handler.h"
#include "router/http/server.h"
#include "router/http/tls_context.h"

namespace baton::router {

// What the connections of a server share.
struct ConnectionContext {
  explicit ConnectionContext(int64_t body_bytes) : bodies(body_bytes) {}

  const HttpServerOptions* options = nullptr;
  HttpHandler* handler = nullptr;
  boost::asio::thread_pool* handler_pool = nullptr;
  TlsContext* tls = nullptr;                         // null: plain text
  prometheus::Counter* failed_handshakes = nullptr;  // null: not counted
  std::atomic<bool> draining{false};
  BodyBudget bodies;
};

// One client connection: reads a request, has it handled, writes the answer, and so on. Everything
// runs on the strand of its socket.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext* context);

  // Runs until the connection is closed.
  boost::asio::awaitable<void> Run();
  // Answers 503 and closes: the server has too many connections.
  boost::asio::awaitable<void> RunRefused();

  // From any thread: closes at once if no request is under way, or in any case.
  void CloseIfIdle();
  void CloseNow();

 private:
  enum class Next { kRequest, kClose };

  struct Received {
    HttpRequest request;
    bool keep_alive = false;
    bool chunked_allowed = true;  // HTTP/1.0 knows no chunks: the end of a stream closes
  };

  struct Incoming;

  // False: there is nobody to speak with.
  boost::asio::awaitable<bool> Handshake();
  // Nullopt: the connection is to be closed, and who was refused has been told so.
  boost::asio::awaitable<std::optional<Received>> Read();
  boost::asio::awaitable<bool> WaitForBytes();
  boost::asio::awaitable<void> ReadHead(Incoming& incoming);
  // False: there is nobody to speak with.
  boost::asio::awaitable<bool> ReadBody(Incoming& incoming);
  // The answer to a request that did not come to its end; nullopt: there is nobody to hear it.
  std::optional<HttpResponse> RefuseBroken(const Incoming& incoming);
  boost::asio::awaitable<Next> Serve(Received received);
  boost::asio::awaitable<bool> WriteParts(Exchange::Parts& parts, bool chunked, bool keep_alive);
  boost::asio::awaitable<bool> WriteWhole(const HttpResponse& response, bool keep_alive);
  boost::asio::awaitable<bool> WriteHead(const HttpResponse& head, bool chunked, bool keep_alive);
  boost::asio::awaitable<bool> WriteRaw(std::string bytes);
  // Of a request of which nothing was read. Not written out where it is awaited: GCC 12 frees an
  // aggregate twice that is made in such an expression.
  HttpResponse RefuseUnread(int status, const std::string& message);
  boost::asio::awaitable<void> RefuseAndDrain(HttpResponse response);
  // Tells the client that nothing more comes; under TLS waits for it to say the same.
  boost::asio::awaitable<void> EndSending();
  boost::asio::awaitable<void> Watch(std::shared_ptr<Exchange> exchange);

  // From now on what the socket waits for is cancelled after `time`, until the next Arm or Disarm.
  void Arm(std::chrono::nanoseconds time);
  void Disarm();
  void WaitForTimer();
  void Close();

  tls::Stream<boost::asio::ip::tcp::socket> stream_;
  boost::asio::steady_timer timer_;
  uint64_t timer_epoch_ = 0;  // a timer that fires for an earlier Arm does nothing
  bool timed_out_ = false;
  ConnectionContext* const context_;
  boost::beast::flat_buffer buffer_;           // received, not yet parsed
  std::chrono::nanoseconds handshake_time_{};  // until it is taken from the first head's
  bool idle_ = true;                           // between two requests
  bool head_only_ = false;                     // the request is a HEAD: its answer has no body
  bool watching_ = false;                      // Watch runs
  bool stop_watching_ = false;  // the answer is complete, or the client known to be gone
  bool client_gone_ = false;
};

}  // namespace baton::router
