#include "router/http/connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/redirect_error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/http.hpp"
#include "router/http/request_head.h"

namespace baton::router {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

// Pipelined requests are read ahead up to this much while an answer is under way; a client that
// sends more is no longer watched for its end, only noticed when it takes nothing.
constexpr size_t kReadAheadBytes = 64 << 10;
// One read of what is not part of a request under way: thousands of connections wait like this.
constexpr size_t kWaitingReadBytes = 4 << 10;

// What is left of a refused request is read and dropped within these bounds: closing with unread
// data would reset the connection before the client has read why.
constexpr size_t kMaxDiscardedBytes = 64 << 20;
constexpr std::chrono::seconds kDiscardTime{3};
constexpr std::chrono::milliseconds kCancelAgain{20};

auto Into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

template <typename Fields>
void SetHeaders(const HttpResponse& response, Fields& message) {
  message.set(http::field::server, "baton");
  message.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.set(name, value);
}

Refusal RefusalOf(const error_code& error, const HttpServerOptions& options) {
  if (error == http::error::header_limit) {
    return {431, absl::StrCat("the request headers exceed ", options.max_header_bytes, " bytes")};
  }
  if (error == http::error::body_limit) {
    return {413, absl::StrCat("the request body exceeds ", options.max_body_bytes, " bytes")};
  }
  const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
  if (ended || error.category() != http::make_error_code(http::error::bad_method).category()) {
    return {};
  }
  return {400, absl::StrCat("malformed HTTP request: ", error.message())};
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

HttpRequest RequestOf(const http::request_header<>& head) {
  const bool head_only = head.method() == http::verb::head;
  return {.method = head_only ? "GET" : std::string(View(head.method_string())),
          .path = PathOf(head.target()),
          .content_type = std::string(View(head[http::field::content_type])),
          .authorization = std::string(View(head[http::field::authorization])),
          .request_id = std::string(View(head["X-Request-Id"]))};
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext* context)
    : stream_(std::move(socket)), timer_(stream_.get_executor()), context_(context) {
  error_code ignored;
  stream_.transport().set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Connection::Arm(std::chrono::nanoseconds time) {
  ++timer_epoch_;
  timed_out_ = false;
  timer_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(time));
  WaitForTimer();
}

void Connection::Disarm() {
  ++timer_epoch_;
  timer_.cancel();
}

void Connection::WaitForTimer() {
  timer_.async_wait([self = shared_from_this(), epoch = timer_epoch_](const error_code& error) {
    if (error || epoch != self->timer_epoch_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->stream_.transport().cancel(ignored);
    // Between two steps of one operation there was nothing to cancel: try again.
    self->timer_.expires_after(kCancelAgain);
    self->WaitForTimer();
  });
}

void Connection::CloseIfIdle() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->Close();
  });
}

void Connection::CloseNow() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->Close(); });
}

asio::awaitable<void> Connection::Run() {
  bool open = co_await Handshake();
  while (open) {
    std::optional<Received> received = co_await Read();
    if (!received) break;
    idle_ = false;
    const Next next = co_await Serve(*std::move(received));
    idle_ = open = next == Next::kRequest;
  }
  Close();
}

asio::awaitable<bool> Connection::Handshake() {
  if (context_->tls == nullptr) co_return true;
  error_code error;
  const auto begin = std::chrono::steady_clock::now();
  Arm(context_->options->header_timeout);
  auto& tls = stream_.Secure(context_->tls->Current());
  co_await tls.async_handshake(asio::ssl::stream_base::server, Into(error));
  Disarm();
  handshake_time_ = std::chrono::steady_clock::now() - begin;
  if (!error) co_return true;
  // Who says nothing only looks whether the port is open, as probes do.
  const bool spoke = BIO_number_read(SSL_get_rbio(tls.native_handle())) > 0;
  if (spoke && context_->failed_handshakes != nullptr) context_->failed_handshakes->Increment();
  const bool plain =
      error.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
  if (plain) {
    stream_.DropTls();
    co_await RefuseAndDrain(RefuseUnread(400, "this port speaks HTTPS, not HTTP"));
  }
  co_return false;
}

void Connection::Close() {
  Disarm();
  error_code ignored;
  stream_.transport().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.transport().close(ignored);
}

HttpResponse Connection::RefuseUnread(int status, const std::string& message) {
  return context_->handler->Refuse({}, status, message);
}

asio::awaitable<void> Connection::RunRefused() {
  idle_ = false;
  const bool open = co_await Handshake();
  if (open) co_await RefuseAndDrain(RefuseUnread(503, "too many connections"));
  Close();
}

// A request while it is read.
struct Connection::Incoming {
  explicit Incoming(ConnectionContext& context) : share(&context.bodies) {
    parser.header_limit(static_cast<uint32_t>(context.options->max_header_bytes));
    parser.body_limit(static_cast<uint64_t>(context.options->max_body_bytes));
  }

  http::request_parser<http::string_body> parser;
  HttpRequest request;  // its head, or a part of it
  BodyBudget::Share share;
  const char* part = "headers";  // that is read
  error_code error;
  std::optional<HttpResponse> refused;
};

asio::awaitable<std::optional<Connection::Received>> Connection::Read() {
  if (buffer_.size() == 0 && !co_await WaitForBytes()) co_return std::nullopt;
  idle_ = false;
  Incoming incoming(*context_);
  co_await ReadHead(incoming);
  const bool goes_on = !incoming.error && !incoming.refused && !incoming.parser.is_done();
  if (goes_on && !co_await ReadBody(incoming)) co_return std::nullopt;
  Disarm();
  if (incoming.error) incoming.refused = RefuseBroken(incoming);
  const bool whole = !incoming.error && !incoming.refused;
  if (incoming.refused) co_await RefuseAndDrain(*std::move(incoming.refused));
  if (!whole) co_return std::nullopt;

  http::request<http::string_body> message = incoming.parser.release();
  Received received{.request = std::move(incoming.request)};
  received.keep_alive = message.keep_alive();
  received.chunked_allowed = message.version() >= 11;
  received.request.body = std::move(message.body());
  received.request.body_share = std::move(incoming.share);
  co_return received;
}

// Nothing is pipelined.
asio::awaitable<bool> Connection::WaitForBytes() {
  error_code error;
  buffer_.shrink_to_fit();
  Arm(context_->options->idle_timeout);
  const size_t bytes =
      co_await stream_.async_read_some(buffer_.prepare(kWaitingReadBytes), Into(error));
  buffer_.commit(bytes);
  co_return !error;
}

asio::awaitable<void> Connection::ReadHead(Incoming& incoming) {
  Arm(context_->options->header_timeout - std::exchange(handshake_time_, {}));
  co_await http::async_read_header(stream_, buffer_, incoming.parser, Into(incoming.error));
  const auto& head = incoming.parser.get();
  head_only_ = head.method() == http::verb::head;
  incoming.request = RequestOf(head);
  if (incoming.error) co_return;
  if (const std::optional<Refusal> refusal = RefuseHead(head)) {
    incoming.refused =
        context_->handler->Refuse(incoming.request, refusal->status, refusal->message);
  } else {
    incoming.refused = context_->handler->RefuseHead(incoming.request);
  }
}

asio::awaitable<bool> Connection::ReadBody(Incoming& incoming) {
  incoming.part = "body";
  auto& parser = incoming.parser;
  if (beast::iequals(parser.get()[http::field::expect], "100-continue") &&
      !co_await WriteRaw("HTTP/1.1 100 Continue\r\n\r\n")) {
    co_return false;
  }
  Arm(context_->options->body_timeout);
  parser.eager(true);
  while (!incoming.error && !parser.is_done()) {
    co_await http::async_read_some(stream_, buffer_, parser, Into(incoming.error));
    if (incoming.share.Grow(static_cast<int64_t>(parser.get().body().size()))) continue;
    incoming.error = {};
    parser.get().body() = std::string();
    incoming.share = BodyBudget::Share();
    incoming.refused =
        context_->handler->Refuse(incoming.request, 503, "too many requests are being received");
    break;
  }
  co_return true;
}

std::optional<HttpResponse> Connection::RefuseBroken(const Incoming& incoming) {
  const Refusal refusal =
      timed_out_
          ? Refusal{408, absl::StrCat("the request ", incoming.part, " did not arrive in time")}
          : RefusalOf(incoming.error, *context_->options);
  if (refusal.status == 0) return std::nullopt;
  return context_->handler->Refuse(incoming.request, refusal.status, refusal.message);
}

asio::awaitable<Connection::Next> Connection::Serve(Received received) {
  auto exchange =
      std::make_shared<Exchange>(stream_.get_executor(), context_->handler_pool->get_executor(),
                                 context_->options->max_unread_bytes);
  asio::post(*context_->handler_pool,
             [handler = context_->handler, request = std::move(received.request),
              exchange]() mutable { handler->Handle(std::move(request), std::move(exchange)); });
  watching_ = true;
  stop_watching_ = false;
  asio::co_spawn(
      stream_.get_executor(),
      [self = shared_from_this(), exchange] { return self->Watch(exchange); }, asio::detached);

  bool finished = false;
  bool keep_alive = received.keep_alive;
  bool chunked = false;
  while (!finished && !client_gone_) {
    Exchange::Parts parts = exchange->Take();
    if (parts.Empty()) {
      co_await exchange->Wait();
      continue;
    }
    if (parts.overrun) {
      client_gone_ = true;
      break;
    }
    finished = parts.finished;
    if (parts.head) {
      chunked = parts.streamed && received.chunked_allowed;
      keep_alive = keep_alive && !context_->draining && (chunked || !parts.streamed);
    }
    if (!co_await WriteParts(parts, chunked, keep_alive)) client_gone_ = true;
  }
  if (client_gone_) exchange->Disconnect();
  // The read that watches for the end has to be over before the next request is read.
  error_code ignored;
  stop_watching_ = true;
  stream_.transport().cancel(ignored);
  Arm(kCancelAgain);  // under TLS one read has several steps
  while (watching_) co_await exchange->Wait();
  Disarm();
  if (client_gone_) co_return Next::kClose;
  if (keep_alive) co_return Next::kRequest;
  co_await EndSending();
  co_return Next::kClose;
}

asio::awaitable<void> Connection::Watch(std::shared_ptr<Exchange> exchange) {
  error_code error;
  while (!error && !stop_watching_ && buffer_.size() < kReadAheadBytes) {
    const size_t bytes =
        co_await stream_.async_read_some(buffer_.prepare(kWaitingReadBytes), Into(error));
    buffer_.commit(bytes);
  }
  // The end of what the client sends is told to one read: the next would wait for it in vain.
  if (error && (!stop_watching_ || error != asio::error::operation_aborted)) {
    client_gone_ = true;
    // A write that waits for a client that is gone must not wait for its timeout.
    error_code ignored;
    stream_.transport().cancel(ignored);
  }
  watching_ = false;
  exchange->Wake();
}

asio::awaitable<bool> Connection::WriteParts(Exchange::Parts& parts, bool chunked,
                                             bool keep_alive) {
  if (parts.head && !parts.streamed) co_return co_await WriteWhole(*parts.head, keep_alive);
  if (parts.head && !co_await WriteHead(*parts.head, chunked, keep_alive)) co_return false;
  std::string bytes;
  if (chunked && !parts.bytes.empty()) {
    bytes = absl::StrCat(absl::Hex(parts.bytes.size()), "\r\n", parts.bytes, "\r\n");
  } else {
    bytes = std::move(parts.bytes);
  }
  if (chunked && parts.finished) bytes += "0\r\n\r\n";
  co_return bytes.empty() || co_await WriteRaw(std::move(bytes));
}

// Written piece by piece, here and in WriteRaw: the timeout is for a client that takes nothing, not
// for one that takes a long answer slowly.
asio::awaitable<bool> Connection::WriteWhole(const HttpResponse& response, bool keep_alive) {
  http::response<http::string_body> message(static_cast<http::status>(response.status), 11);
  SetHeaders(response, message);
  message.keep_alive(keep_alive);
  message.content_length(response.body.size());
  if (!head_only_) message.body() = response.body;
  http::response_serializer<http::string_body> serializer(message);
  error_code error;
  while (!error && !serializer.is_done()) {
    Arm(context_->options->write_timeout);
    co_await http::async_write_some(stream_, serializer, Into(error));
  }
  Disarm();
  co_return !error;
}

asio::awaitable<bool> Connection::WriteHead(const HttpResponse& head, bool chunked,
                                            bool keep_alive) {
  http::response<http::empty_body> message(static_cast<http::status>(head.status), 11);
  SetHeaders(head, message);
  message.keep_alive(keep_alive);
  if (chunked) message.chunked(true);
  http::response_serializer<http::empty_body> serializer(message);
  Arm(context_->options->write_timeout);
  error_code error;
  co_await http::async_write_header(stream_, serializer, Into(error));
  Disarm();
  co_return !error;
}

asio::awaitable<bool> Connection::WriteRaw(std::string bytes) {
  error_code error;
  for (size_t written = 0; !error && written < bytes.size();) {
    Arm(context_->options->write_timeout);
    written += co_await stream_.async_write_some(asio::buffer(bytes) + written, Into(error));
  }
  Disarm();
  co_return !error;
}

asio::awaitable<void> Connection::RefuseAndDrain(HttpResponse response) {
  if (!co_await WriteWhole(response, /*keep_alive=*/false)) co_return;
  co_await EndSending();
  error_code error;
  Arm(kDiscardTime);
  for (size_t discarded = 0; !error && discarded < kMaxDiscardedBytes;) {
    buffer_.clear();
    discarded +=
        co_await stream_.transport().async_read_some(buffer_.prepare(kReadAheadBytes), Into(error));
  }
}

asio::awaitable<void> Connection::EndSending() {
  error_code ignored;
  if (stream_.tls() != nullptr) {
    Arm(kDiscardTime);
    co_await stream_.tls()->async_shutdown(Into(ignored));
    Disarm();
  }
  stream_.transport().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

}  // namespace baton::router
