#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::router {

// Name lookup, apart so that tests can answer in its place.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // Every address of `host` as ip:port ([ip]:port for IPv6), sorted, each once; never empty.
  // UNAVAILABLE, naming the host, when there is none or nobody can say. May take seconds.
  virtual absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                           const std::string& port) = 0;
};

// The operating system's: hosts file, DNS. Thread-safe.
class SystemResolver final : public Resolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                   const std::string& port) override;
};

}  // namespace baton::router
