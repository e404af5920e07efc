#pragma once

#include <string>
#include <string_view>

namespace baton::router {

// What a client calls its request (X-Request-Id), if that may stand in logs and headers: up to 128
// letters, digits and any of -_.:/+=@. Otherwise nothing, and the request has the router's id
// alone.
std::string ClientRequestId(std::string_view given);

}  // namespace baton::router
