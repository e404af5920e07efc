#include "router/http/server.h"

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/redirect_error.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/strand.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "common/acceptor.h"
#include "common/gate.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "router/http/connection.h"
#include "router/http/tls_context.h"

namespace baton::router {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

absl::StatusOr<tcp::acceptor> Listen(asio::io_context& io, const std::string& listen) {
  const auto failed = [&](const error_code& error) {
    return absl::UnavailableError(
        absl::StrCat("HTTP cannot listen on '", listen, "': ", error.message()));
  };
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  error_code error;
  const auto resolved =
      tcp::resolver(io).resolve(address.host, absl::StrCat(address.port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || resolved.empty()) return failed(error);
  const tcp::endpoint endpoint = resolved.begin()->endpoint();
  tcp::acceptor acceptor(asio::make_strand(io));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed(error);
  return acceptor;
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& options, HttpHandler* handler, prometheus::Gauge* gauge)
      : options(options),
        gauge(gauge),
        context(options.max_buffered_bytes),
        handler_pool(static_cast<size_t>(options.threads)) {
    context.options = &this->options;
    context.handler = handler;
    context.handler_pool = &handler_pool;
  }

  asio::awaitable<void> Accept();
  void Admit(tcp::socket socket);
  void ForEachConnection(void (Connection::*action)());

  const HttpServerOptions options;
  prometheus::Gauge* const gauge;
  std::unique_ptr<TlsContext> tls;  // null: plain text
  // Before `io`, which destroys the connections that are left.
  Gate open;
  std::atomic<int> refused = 0;  // of those in `open`: beyond the limit, being told so
  Mutex mutex;
  uint64_t next_id ABSL_GUARDED_BY(mutex) = 0;
  absl::flat_hash_map<uint64_t, std::weak_ptr<Connection>> connections ABSL_GUARDED_BY(mutex);
  ConnectionContext context;

  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::thread_pool handler_pool;
  std::optional<tcp::acceptor> acceptor;
  uint16_t port = 0;
  std::vector<std::thread> threads;
  bool stopped = false;
};

asio::awaitable<void> HttpServer::Impl::Accept() {
  while (acceptor->is_open()) {
    error_code error;
    tcp::socket socket(asio::make_strand(io));
    co_await acceptor->async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      Admit(std::move(socket));
    } else if (error != asio::error::operation_aborted) {
      // Out of file descriptors or the like: what is open has to end first.
      WarnNotAccepted("HTTP", error.message());
      asio::steady_timer pause(acceptor->get_executor(), kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

void HttpServer::Impl::Admit(tcp::socket socket) {
  Gate::Pass pass = open.TryEnter();
  if (!pass) return;
  const bool full = open.inside() - refused > options.max_connections;
  // Told why as long as those that are being told are not as many again; then just closed.
  if (full && refused >= options.max_connections) return;
  if (full) ++refused;
  const auto executor = socket.get_executor();
  auto connection = std::make_shared<Connection>(std::move(socket), &context);
  uint64_t id;
  {
    MutexLock lock(mutex);
    id = next_id++;
    connections.emplace(id, connection);
  }
  gauge->Increment();
  asio::co_spawn(
      executor,
      [connection = std::move(connection), full] {
        return full ? connection->RunRefused() : connection->Run();
      },
      [this, id, full, pass = std::move(pass)](std::exception_ptr exception) {
        gauge->Decrement();
        if (full) --refused;
        MutexLock lock(mutex);
        connections.erase(id);
        if (exception) spdlog::error("an HTTP connection ended with an exception");
      });
}

void HttpServer::Impl::ForEachConnection(void (Connection::*action)()) {
  std::vector<std::shared_ptr<Connection>> present;
  {
    MutexLock lock(mutex);
    for (const auto& [id, weak] : connections) {
      if (std::shared_ptr<Connection> connection = weak.lock()) present.push_back(connection);
    }
  }
  for (const auto& connection : present) (connection.get()->*action)();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { Shutdown(std::chrono::nanoseconds::zero()); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const HttpServerOptions& options, HttpHandler* handler, prometheus::Gauge* connections,
    prometheus::Counter* failed_handshakes) {
  auto impl = std::make_unique<Impl>(options, handler, connections);
  if (!options.tls.empty()) {
    BATON_ASSIGN_OR_RETURN(impl->tls, TlsContext::Load(options.tls));
    impl->context.tls = impl->tls.get();
    impl->context.failed_handshakes = failed_handshakes;
  }
  absl::StatusOr<tcp::acceptor> acceptor = Listen(impl->io, options.listen);
  if (!acceptor.ok()) return acceptor.status();
  impl->acceptor.emplace(*std::move(acceptor));
  impl->port = impl->acceptor->local_endpoint().port();
  asio::co_spawn(impl->acceptor->get_executor(), impl->Accept(), asio::detached);
  for (int i = 0; i < options.threads; ++i) {
    impl->threads.emplace_back([io = &impl->io] { io->run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::Drain() { impl_->context.draining = true; }

void HttpServer::Shutdown(std::chrono::nanoseconds grace) {
  if (std::exchange(impl_->stopped, true)) return;
  Drain();
  impl_->open.Close();
  asio::post(impl_->acceptor->get_executor(), [this] {
    error_code ignored;
    impl_->acceptor->close(ignored);
  });
  impl_->ForEachConnection(&Connection::CloseIfIdle);
  if (!impl_->open.WaitEmpty(grace)) {
    impl_->ForEachConnection(&Connection::CloseNow);
    constexpr std::chrono::seconds kClosing{1};
    impl_->open.WaitEmpty(kClosing);
  }
  impl_->work.reset();
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->handler_pool.join();
}

}  // namespace baton::router
