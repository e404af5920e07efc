#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path = {};  // without a '/' at its end; empty for the root
  bool https = false;

  std::string Authority() const;  // "host:port", "[::1]:port"
  std::string ToString() const;   // "http[s]://host:port/path"
};

// Of "http[s]://host[:port][/path]"; "http://" may be left out. INVALID_ARGUMENT names the text.
absl::StatusOr<Url> ParseUrl(absl::string_view text);

struct HttpOptions {
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
  // The longest silence: until the head of an answer, and between two pieces of it.
  std::chrono::nanoseconds silence_timeout = std::chrono::minutes(10);
  // Asked twenty times a second while a call waits: true ends it as CANCELLED.
  std::function<bool()> cancelled = nullptr;
  std::string authorization = {};  // the header of that name, if not empty: see api_key.h
  size_t max_bytes = 64 << 20;     // of the body of an answer, or of one event of a stream
  // Of https, in PEM: the server's certificate must be one of these or signed by one of them;
  // empty: by whom the system trusts.
  std::string ca_file = {};
  bool any_name = false;  // of a server that is known by its certificate, whatever that says
};

struct HttpResponse {
  int status = 0;
  std::string body = {};

  bool ok() const { return status >= 200 && status < 300; }
};

// Data of one server-sent event, its lines joined. False ends the stream: the connection is closed,
// and the call returns OK.
using OnEvent = std::function<bool(absl::string_view data)>;

// A blocking HTTP/1.1 client for one server; the connection is kept and reopened when the server
// has closed it. One call at a time.
//
// Errors name the URL: UNAVAILABLE (not reached, not trusted, broken off), DEADLINE_EXCEEDED
// (silence), CANCELLED, DATA_LOSS (an answer or an event above max_bytes). Those of what is given
// do not: INVALID_ARGUMENT (ca_file holds no certificates, a host that no certificate can name),
// INTERNAL (the system's certificates). An answer of any status is a response, not an error: see
// StatusOf.
class HttpClient {
 public:
  explicit HttpClient(Url base, HttpOptions options = {});
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  // `path` begins with '/' and is put behind the base's.
  absl::StatusOr<HttpResponse> Get(absl::string_view path);
  // Calls `on_event` for each event of a text/event-stream as it arrives; the response then has no
  // body. Any other answer is returned whole and without events.
  absl::StatusOr<HttpResponse> StreamJson(absl::string_view path, std::string body,
                                          const OnEvent& on_event);

  const Url& base() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// OK for 2xx; otherwise an error whose message is "<url>: HTTP 400: <what the server says>", with
// the message of an OpenAI error body if it is one. 429 is RESOURCE_EXHAUSTED, 503 UNAVAILABLE,
// other 4xx INVALID_ARGUMENT, the rest INTERNAL.
absl::Status StatusOf(const HttpResponse& response, absl::string_view url);

}  // namespace baton::cli
