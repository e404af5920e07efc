#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 0;
};

// Of "host:port", IPv6 as "[::1]:port". INVALID_ARGUMENT, naming the text, for anything else; a
// port beyond 65535 above all, since resolvers and socket calls take it modulo 65536.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
bool IsHostPort(const std::string& text);

// The host of an address that ParseHostPort takes, brackets included, and that host with another
// port: where somebody listens who has let the kernel choose.
absl::string_view HostPart(absl::string_view address);
std::string WithPort(absl::string_view address, int port);

// INVALID_ARGUMENT naming two of them if no process can listen at all of these at once: addresses
// that ParseHostPort takes, by what they are called.
absl::Status CheckListensApart(const std::vector<std::pair<std::string, std::string>>& addresses);

// Whether whoever listens at this host, with or without brackets, does so at all addresses of the
// machine, and nobody elsewhere can connect to it by this name.
bool IsAnyAddress(absl::string_view host);

}  // namespace baton
