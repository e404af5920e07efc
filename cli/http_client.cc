#include "cli/http_client.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "cli/event_stream.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/tls/stream.h"
#include "common/version.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr auto kCancelCheck = std::chrono::milliseconds(50);
constexpr int64_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kReadBytes = 16 << 10;

using Tls = tls::Stream<beast::tcp_stream>::Tls;

absl::StatusOr<std::shared_ptr<asio::ssl::context>> TrustOf(const HttpOptions& options) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  context->set_verify_mode(asio::ssl::verify_peer, error);
  if (!error && options.ca_file.empty()) context->set_default_verify_paths(error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("TLS: the certificates that the system trusts: ", error.message()));
  }
  if (options.ca_file.empty()) return context;
  context->load_verify_file(options.ca_file, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.ca_file, " holds no certificate in PEM: ", error.message()));
  }
  // A server's own certificate will do.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context->native_handle()), X509_V_FLAG_PARTIAL_CHAIN);
  return context;
}

// Certificates hold names and addresses apart, and servers are told only names.
absl::Status ExpectName(Tls& tls, const std::string& host) {
  SSL* ssl = tls.native_handle();
  X509_VERIFY_PARAM* verify = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  error_code no_address;
  asio::ip::make_address(host, no_address);
  const bool expected =
      no_address ? !host.empty() &&  // which would stand for any
                       X509_VERIFY_PARAM_set1_host(verify, host.c_str(), host.size()) == 1 &&
                       SSL_set_tlsext_host_name(ssl, host.c_str()) == 1
                 : X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str()) == 1;
  if (expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no certificate can be checked for the host '", host, "'"));
}

}  // namespace

std::string Url::Authority() const {
  const bool ipv6 = absl::StrContains(host, ':');
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
}

std::string Url::ToString() const {
  return absl::StrCat(https ? "https://" : "http://", Authority(), path);
}

absl::StatusOr<Url> ParseUrl(absl::string_view text) {
  absl::string_view rest = text;
  const bool https = absl::ConsumePrefix(&rest, "https://");
  if (!https && !absl::ConsumePrefix(&rest, "http://") && absl::StrContains(rest, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("URL '", text, "' does not begin with http:// or https://"));
  }
  const absl::string_view authority = rest.substr(0, rest.find('/'));
  const bool has_port = absl::StrContains(authority.substr(authority.rfind(']') + 1), ':');
  absl::StatusOr<HostPort> address = ParseHostPort(
      has_port ? std::string(authority) : absl::StrCat(authority, https ? ":443" : ":80"));
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("URL '", text, "': ", address.status().message()));
  }
  const absl::string_view path = absl::StripSuffix(rest.substr(authority.size()), "/");
  return Url{
      .host = address->host, .port = address->port, .path = std::string(path), .https = https};
}

struct HttpClient::Impl {
  Impl(Url base, HttpOptions options) : base(std::move(base)), options(std::move(options)) {}

  const Url base;
  const HttpOptions options;
  asio::io_context context{1};
  std::shared_ptr<asio::ssl::context> trust;             // null before it is needed
  std::optional<tls::Stream<beast::tcp_stream>> stream;  // absent: not connected
  beast::flat_buffer buffer;

  bool Cancelled() const { return options.cancelled && options.cancelled(); }

  // Runs one asynchronous operation to its end, asking now and then whether it shall go on.
  template <typename Start>
  error_code Run(std::chrono::nanoseconds timeout, const Start& start) {
    error_code result = asio::error::would_block;
    stream->transport().expires_after(timeout);
    start([&result](error_code error, auto&&...) { result = error; });
    context.restart();
    while (context.run_one_for(kCancelCheck) > 0 || !context.stopped()) {
      if (Cancelled()) stream->transport().cancel();
    }
    return Cancelled() ? error_code(asio::error::operation_aborted) : result;
  }

  absl::Status Error(error_code error, absl::string_view url, absl::string_view doing) {
    stream.reset();
    if (Cancelled()) return absl::CancelledError(absl::StrCat(url, ": cancelled"));
    if (error == beast::error::timeout) {
      return absl::DeadlineExceededError(absl::StrCat(url, ": no answer in time, ", doing));
    }
    const std::string reason =
        error == http::error::end_of_stream ? "the server closed the connection" : error.message();
    return absl::UnavailableError(absl::StrCat(url, ": ", doing, ": ", reason));
  }

  absl::Status Connect(absl::string_view url) {
    error_code error;
    asio::ip::tcp::resolver resolver(context);
    const auto endpoints = resolver.resolve(base.host, absl::StrCat(base.port), error);
    if (error) return Error(error, url, "looking up the host");
    stream.emplace(beast::tcp_stream(context));
    buffer.clear();
    error = Run(options.connect_timeout, [&](auto done) {
      stream->transport().async_connect(endpoints, [done](error_code e, const auto&) { done(e); });
    });
    if (error) return Error(error, url, "connecting");
    stream->transport().socket().set_option(asio::ip::tcp::no_delay(true), error);
    const absl::Status secured = base.https ? Handshake(url) : absl::OkStatus();
    if (!secured.ok()) stream.reset();  // or the next call would find it open, in plain text
    return secured;
  }

  absl::Status Handshake(absl::string_view url) {
    if (trust == nullptr) {
      BATON_ASSIGN_OR_RETURN(trust, TrustOf(options));
    }
    Tls& tls = stream->Secure(trust);
    if (!options.any_name) {
      BATON_RETURN_IF_ERROR(ExpectName(tls, base.host));
    }
    const error_code error = Run(options.connect_timeout, [&](auto done) {
      tls.async_handshake(asio::ssl::stream_base::client, done);
    });
    if (!error) return absl::OkStatus();
    const auto verified = SSL_get_verify_result(tls.native_handle());
    std::string doing = "TLS handshake";
    if (verified != X509_V_OK) {
      absl::StrAppend(&doing,
                      ": the server's certificate: ", X509_verify_cert_error_string(verified));
    }
    return Error(error, url, doing);
  }

  // Sends the request and reads the head of the answer. A kept connection may have been closed by
  // the server meanwhile: then, and only if nothing has come back, once more on a new one.
  template <typename Parser>
  absl::Status Exchange(http::request<http::string_body>& request, absl::string_view url,
                        std::optional<Parser>& parser) {
    for (bool reused = stream.has_value();; reused = false) {
      if (!reused) {
        BATON_RETURN_IF_ERROR(Connect(url));
      }
      parser.emplace();
      parser->body_limit(boost::none);  // a stream may be long; Call counts what it keeps
      parser->header_limit(kMaxHeaderBytes);
      error_code error = Run(options.silence_timeout,
                             [&](auto done) { http::async_write(*stream, request, done); });
      if (!error) {
        error = Run(options.silence_timeout,
                    [&](auto done) { http::async_read_header(*stream, buffer, *parser, done); });
      }
      if (!error) return absl::OkStatus();
      const bool stale = reused && !parser->got_some() && error != beast::error::timeout;
      if (!stale || Cancelled()) return Error(error, url, "waiting for the answer");
      stream.reset();
    }
  }

  absl::Status TooLarge(absl::string_view url, absl::string_view what) {
    stream.reset();
    return absl::DataLossError(
        absl::StrCat(url, ": ", what, " is larger than ", options.max_bytes, " bytes"));
  }

  absl::StatusOr<HttpResponse> Call(http::verb method, absl::string_view path, std::string body,
                                    const OnEvent* on_event);
};

absl::StatusOr<HttpResponse> HttpClient::Impl::Call(http::verb method, absl::string_view path,
                                                    std::string body, const OnEvent* on_event) {
  const std::string target = absl::StrCat(base.path, path);
  const std::string url = absl::StrCat(base.ToString(), path);
  http::request<http::string_body> request(method, target, 11);
  request.set(http::field::host, base.Authority());
  request.set(http::field::user_agent, absl::StrCat("baton/", std::string(Version())));
  if (!options.authorization.empty()) {
    request.set(http::field::authorization, options.authorization);
  }
  if (method == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();

  std::optional<http::response_parser<http::buffer_body>> parser;
  BATON_RETURN_IF_ERROR(Exchange(request, url, parser));
  HttpResponse response{.status = static_cast<int>(parser->get().result_int())};
  const bool events =
      on_event != nullptr && response.ok() &&
      absl::StartsWith(std::string(parser->get()[http::field::content_type]), "text/event-stream");
  EventStreamParser event_parser(options.max_bytes);
  std::string piece(kReadBytes, '\0');
  while (!parser->is_done()) {
    parser->get().body().data = piece.data();
    parser->get().body().size = piece.size();
    error_code error = Run(options.silence_timeout, [&](auto done) {
      http::async_read_some(*stream, buffer, *parser, done);
    });
    if (error == http::error::need_buffer) error = {};
    if (error) return Error(error, url, "reading the answer");
    const absl::string_view bytes(piece.data(), piece.size() - parser->get().body().size);
    if (!events) {
      absl::StrAppend(&response.body, bytes);
      if (response.body.size() > options.max_bytes) return TooLarge(url, "the answer");
    } else if (!event_parser.Feed(bytes, *on_event)) {
      if (event_parser.too_large()) return TooLarge(url, "an event");
      stream.reset();
      return response;
    }
  }
  if (!parser->keep_alive()) stream.reset();
  return response;
}

HttpClient::HttpClient(Url base, HttpOptions options)
    : impl_(std::make_unique<Impl>(std::move(base), std::move(options))) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;

absl::StatusOr<HttpResponse> HttpClient::Get(absl::string_view path) {
  return impl_->Call(http::verb::get, path, "", nullptr);
}

absl::StatusOr<HttpResponse> HttpClient::StreamJson(absl::string_view path, std::string body,
                                                    const OnEvent& on_event) {
  return impl_->Call(http::verb::post, path, std::move(body), &on_event);
}

const Url& HttpClient::base() const { return impl_->base; }

absl::Status StatusOf(const HttpResponse& response, absl::string_view url) {
  if (response.ok()) return absl::OkStatus();
  std::string said = response.body.substr(0, 500);
  const auto json = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error") && json["error"].is_object() &&
      json["error"].contains("message") && json["error"]["message"].is_string()) {
    said = json["error"]["message"].get<std::string>();
  }
  const std::string message = absl::StrCat(url, ": HTTP ", response.status, ": ", said);
  if (response.status == 429) return absl::ResourceExhaustedError(message);
  if (response.status == 503) return absl::UnavailableError(message);
  return response.status < 500 ? absl::InvalidArgumentError(message) : absl::InternalError(message);
}

}  // namespace baton::cli
