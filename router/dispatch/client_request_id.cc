#include "router/dispatch/client_request_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace baton::router {
namespace {

constexpr size_t kLongest = 128;
constexpr std::string_view kPunctuation = "-_.:/+=@";

bool IsAllowed(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kPunctuation.find(c) != std::string_view::npos;
}

}  // namespace

std::string ClientRequestId(std::string_view given) {
  const bool sane = given.size() <= kLongest && std::ranges::all_of(given, IsAllowed);
  return sane ? std::string(given) : "";
}

}  // namespace baton::router
