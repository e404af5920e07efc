#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cache_description.h"
#include "common/cache_layout.h"

namespace baton::kvtransfer {

// What two workers compare before they exchange caches.
struct Manifest {
  // As in CacheDescription, and the version of the hand-off's protocol.
  std::vector<std::pair<std::string, std::string>> semantics;
  CacheLayout layout;
  uint32_t page_tokens = 0;
  uint32_t rollback_rows = 0;
  std::vector<std::string> transports;  // best first
};

Manifest MakeManifest(CacheDescription cache, std::vector<std::string> transports);

// One number over everything that must be equal; both sides of a request carry it.
uint64_t SemanticsHash(const Manifest& manifest);

// FAILED_PRECONDITION naming the first field that differs, with both values.
absl::Status CheckCompatible(const Manifest& local, const Manifest& remote);

// The transports that both have, best first by the local order; FAILED_PRECONDITION with both lists
// when there is none.
absl::StatusOr<std::vector<std::string>> CommonTransports(const Manifest& local,
                                                          const Manifest& remote);

// Whether frames of this transport lie on a device, as the caches of its workers must.
bool IsDeviceTransport(std::string_view name);

// INVALID_ARGUMENT naming what is unknown, twice there or missing in a configured list, or cannot
// go with caches on `device` ("cpu" or "cuda").
absl::Status CheckTransportNames(const std::vector<std::string>& transports,
                                 const std::string& device);

}  // namespace baton::kvtransfer
