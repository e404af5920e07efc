#include "router/openai/error.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "router/field_at_fault.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// What a refused client is told to wait; the state of workers is polled more often than that.
constexpr const char* kRetryAfterSeconds = "1";

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kCancelled:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOutOfRange:
      return "context_length_exceeded";
    case absl::StatusCode::kNotFound:
      return "model_not_found";
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case absl::StatusCode::kUnavailable:
      return "service_unavailable";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    default:
      return "";
  }
}

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::string ErrorType(int http_status) {
  if (http_status == 429) return "rate_limit_error";
  return http_status >= 500 ? "server_error" : "invalid_request_error";
}

ApiError InvalidField(std::string param, std::string message, std::string code) {
  return {.http_status = 400,
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

ApiError ErrorOf(const absl::Status& status, const FieldNames& names) {
  const int http_status = HttpStatusOf(status.code());
  std::string field = FieldAtFault(status);
  // Workers, who say nothing of fields, find only prompts too long.
  if (field == "prompt" || (field.empty() && absl::IsOutOfRange(status))) field = names.prompt;
  if (field == "max_tokens") field = names.max_tokens;
  const bool invalid_field = absl::IsInvalidArgument(status) && !field.empty();
  return {.http_status = http_status,
          .message = std::string(status.message()),
          .param = std::move(field),
          .code = invalid_field ? "invalid_value" : ErrorCodeOf(status.code()),
          .retry_after = http_status == 429 || http_status == 503};
}

std::string ErrorJson(const ApiError& error) {
  const Json body = {{"error",
                      {{"message", error.message},
                       {"type", ErrorType(error.http_status)},
                       {"param", OrNull(error.param)},
                       {"code", OrNull(error.code)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response{.status = error.http_status, .body = ErrorJson(error) + "\n"};
  if (error.retry_after) response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  return response;
}

}  // namespace baton::router
