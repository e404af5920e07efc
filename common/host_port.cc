#include "common/host_port.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton {

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const auto refused = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not host:port with a port of 0 to 65535"));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return refused();
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[] ") != absl::string_view::npos ||
      (!bracketed && host.find(':') != absl::string_view::npos)) {
    return refused();
  }
  uint32_t port = 0;
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > std::numeric_limits<uint16_t>::max()) {
    return refused();
  }
  return HostPort{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

bool IsHostPort(const std::string& text) { return ParseHostPort(text).ok(); }

absl::string_view HostPart(absl::string_view address) {
  return address.substr(0, address.rfind(':'));
}

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(HostPart(address), ":", port);
}

absl::Status CheckListensApart(const std::vector<std::pair<std::string, std::string>>& addresses) {
  const auto meet = [](absl::string_view a, absl::string_view b) {
    const absl::StatusOr<HostPort> one = ParseHostPort(a), other = ParseHostPort(b);
    return one.ok() && other.ok() && one->port == other->port && one->port != 0 &&
           (one->host == other->host || IsAnyAddress(one->host) || IsAnyAddress(other->host));
  };
  for (size_t i = 0; i < addresses.size(); ++i) {
    for (size_t j = i + 1; j < addresses.size(); ++j) {
      const auto& [name, address] = addresses[i];
      const auto& [other_name, other_address] = addresses[j];
      if (!meet(address, other_address)) continue;
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", address, " and ", other_name,
                                                     " is ", other_address,
                                                     ": the same port cannot serve both"));
    }
  }
  return absl::OkStatus();
}

bool IsAnyAddress(absl::string_view host) {
  return host == "0.0.0.0" || host == "::" || host == "[::]" || host == "*";
}

}  // namespace baton
