#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"

namespace baton {

// Serves GET /metrics over HTTP until it is destroyed. Its threads hold `sources` weakly and have
// ended when the destructor returns: within milliseconds if `listen` names an IPv4 address, else
// two seconds.
class MetricsServer {
 public:
  // Binds host:port; port 0 picks one. UNAVAILABLE when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& listen,
      const std::vector<std::weak_ptr<prometheus::Collectable>>& sources);
  ~MetricsServer();

  int port() const { return port_; }

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, const std::string& listen);

  std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
  uint32_t host_ = 0;  // IPv4, network order; 0.0.0.0 reaches this machine too
};

}  // namespace baton
