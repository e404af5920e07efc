#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/http_client.h"
#include "cli/top/fleet.h"
#include "common/rpc/credentials.h"

namespace baton::cli {

// Reads the metrics of a fleet over and over. Not thread-safe.
class Scraper {
 public:
  // `addresses` are host:port of /metrics of routers and workers, `credentials` for asking workers.
  Scraper(std::vector<std::string> addresses, const rpc::Credentials& credentials);

  // UNAVAILABLE when no endpoint answers. Workers that a router names are asked where their metrics
  // are and read from then on; those it names no more are read no more.
  absl::StatusOr<Reading> Read();

 private:
  void ReadOne(const std::string& address, Reading& reading);
  // Workers that routers know -> where their metrics are, and what they are called.
  struct Found {
    std::string metrics;  // empty: it has none
    std::string name;     // the same
  };
  std::map<std::string, Found> Discover(Reading& reading);

  const std::vector<std::string> addresses_;
  const rpc::Credentials credentials_;
  std::map<std::string, Found> found_;  // by the address of the worker
  std::map<std::string, HttpClient> clients_;
};

}  // namespace baton::cli
