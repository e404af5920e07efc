#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tls/certificate_files.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "router/http/handler.h"

namespace baton::router {

struct HttpServerOptions {
  std::string listen = "127.0.0.1:8000";  // port 0 picks one
  tls::CertificateFiles tls = {};         // HTTPS; none: plain text
  int threads = 2;                        // for connections, and as many again for handlers
  int max_connections = 4096;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 16 << 20;
  int64_t max_buffered_bytes = 512 << 20;  // of the bodies of all requests that are not parsed yet
  int64_t max_unread_bytes = 16 << 20;     // of a stream, that its client has not taken
  std::chrono::nanoseconds header_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(75);   // between two requests
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);  // client takes nothing
};

// HTTP/1.1 with keep-alive and pipelining: requests of a connection are answered one after another.
// A client that closes its side of a connection counts as gone, also while it waits for an answer.
// Beyond a limit the answer is 408, 413, 431 or 503, and a request that may end elsewhere than it
// seems (an unknown transfer coding, no Host) is 400, 415 or 501; then the connection is closed.
// Under TLS the handshake takes its time from the first head's, and plain HTTP is answered with a
// plain 400.
// Thread-safe.
class HttpServer {
 public:
  // Serves from the moment it returns. INVALID_ARGUMENT when `listen` is no host:port; UNAVAILABLE,
  // naming the address, when it cannot be bound; errors of TlsContext::Load. `handler`,
  // `connections` (a gauge of the open ones) and `failed_handshakes` must outlive the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const HttpServerOptions& options, HttpHandler* handler, prometheus::Gauge* connections,
      prometheus::Counter* failed_handshakes = nullptr);
  // Shutdown(0).
  ~HttpServer();

  uint16_t port() const;

  // From now on each answer is the last of its connection.
  void Drain();

  // Stops listening, closes idle connections, waits up to `grace` for answers under way, then
  // closes what is left. Idempotent.
  void Shutdown(std::chrono::nanoseconds grace);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::router
