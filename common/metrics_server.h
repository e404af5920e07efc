#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// Serves GET /metrics over HTTP/1.1 until it is destroyed, on one thread that waits for no client:
// a connection is for one request, ends after five seconds whatever it does, and gives way to new
// ones when there are too many. Idle and slow clients therefore keep no scrape waiting.
class MetricsServer {
 public:
  // Binds host:port; port 0 picks one. `text` is the body of the answer; it runs on the server's
  // thread and not after the destructor. INVALID_ARGUMENT: not a host:port; UNAVAILABLE, naming the
  // address: it cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              std::function<std::string()> text);
  ~MetricsServer();

  int port() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
