#include "router/http/request_head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton::router {

namespace http = boost::beast::http;

namespace {

absl::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::optional<Refusal> RefuseHead(const http::request_header<>& head) {
  const auto is = [&](http::field field, absl::string_view value) {
    return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(View(head[field])), value);
  };
  const auto codings = head.count(http::field::transfer_encoding);
  if (codings > 0 && head.version() < 11) {
    return Refusal{400, "HTTP/1.0 has no Transfer-Encoding"};
  }
  if (codings > 1 || (codings == 1 && !is(http::field::transfer_encoding, "chunked"))) {
    return Refusal{
        501, absl::StrCat("Transfer-Encoding is '", View(head[http::field::transfer_encoding]),
                          "', only chunked is supported")};
  }
  if (head.count(http::field::content_encoding) > 0 &&
      !is(http::field::content_encoding, "identity")) {
    return Refusal{415,
                   absl::StrCat("Content-Encoding is '", View(head[http::field::content_encoding]),
                                "', request bodies are taken as they are only")};
  }
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() >= 11)) {
    return Refusal{400, absl::StrCat("the request has ", hosts, " Host headers, expected one")};
  }
  return std::nullopt;
}

std::string PathOf(boost::beast::string_view target) {
  absl::string_view path = View(target);
  path = path.substr(0, path.find('?'));
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(path, scheme)) continue;
    const size_t slash = path.find('/', scheme.size());
    return slash == absl::string_view::npos ? "/" : std::string(path.substr(slash));
  }
  return std::string(path);
}

}  // namespace baton::router
