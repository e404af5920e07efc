#pragma once

#include <optional>
#include <string>

#include "boost/beast/http.hpp"

namespace baton::router {

struct Refusal {
  int status = 0;  // 0: close without a word
  std::string message = {};
};

// Why a request whose head the parser took is not served all the same; nullopt: it is. Beast takes
// a body under a coding that it does not know for no body, and what follows for the next request:
// behind a proxy that would answer one client with what another asked.
std::optional<Refusal> RefuseHead(const boost::beast::http::request_header<>& head);

// The path that a request target asks for, without the query: of "/path?query", and of
// "http://host/path?query", which proxies send.
std::string PathOf(boost::beast::string_view target);

}  // namespace baton::router
