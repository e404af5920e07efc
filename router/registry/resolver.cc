#include "router/registry/resolver.h"

#include <memory>
#include <set>

#include <netdb.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace baton::router {

absl::StatusOr<std::vector<std::string>> SystemResolver::Resolve(const std::string& host,
                                                                 const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("looking up ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::set<std::string> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char ip[NI_MAXHOST];
    if (getnameinfo(info->ai_addr, info->ai_addrlen, ip, sizeof(ip), nullptr, 0, NI_NUMERICHOST)) {
      continue;
    }
    const bool is_v6 = info->ai_family == AF_INET6;
    addresses.insert(is_v6 ? absl::StrCat("[", ip, "]:", port) : absl::StrCat(ip, ":", port));
  }
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat(host, " has no address"));
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

}  // namespace baton::router
