#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "router/http/handler.h"

namespace baton::router {

// An error as OpenAI's clients read it: {"error": {message, type, param, code}}.
struct ApiError {
  int http_status = 400;
  std::string message = {};
  std::string param = {};  // the field that is wrong; empty: null
  std::string code = {};   // empty: null
  bool retry_after = false;
};

// The type that goes with the HTTP status: "invalid_request_error", "rate_limit_error" ...
std::string ErrorType(int http_status);

ApiError InvalidField(std::string param, std::string message, std::string code);

// What a client calls what is at fault (FieldAtFault) under other names.
struct FieldNames {
  std::string prompt = "prompt";
  std::string max_tokens = "max_tokens";
};

// Of a generation that could not start or failed.
ApiError ErrorOf(const absl::Status& status, const FieldNames& names = {});

std::string ErrorJson(const ApiError& error);
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace baton::router
