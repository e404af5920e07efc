#include "router/openai/error.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

struct Mapping {
  absl::StatusCode code;
  int http_status;
  const char* type;
  const char* error_code;  // "" for null
  bool retry_after;
};

class ErrorOfStatus : public ::testing::TestWithParam<Mapping> {};

TEST_P(ErrorOfStatus, HasStatusTypeCodeAndRetryAfter) {
  const Mapping& m = GetParam();
  const HttpResponse response = ErrorResponse(ErrorOf(absl::Status(m.code, "what happened")));
  EXPECT_EQ(response.status, m.http_status);
  const nlohmann::json error = nlohmann::json::parse(response.body).at("error");
  EXPECT_EQ(error.at("message"), "what happened");
  EXPECT_EQ(error.at("type"), m.type);
  if (*m.error_code == '\0') {
    EXPECT_TRUE(error.at("code").is_null());
  } else {
    EXPECT_EQ(error.at("code"), m.error_code);
  }
  EXPECT_EQ(error.size(), 4u);
  const bool has_retry_after =
      !response.headers.empty() && response.headers[0].first == "Retry-After";
  EXPECT_EQ(has_retry_after, m.retry_after);
}

constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kServer = "server_error";
INSTANTIATE_TEST_SUITE_P(
    Codes, ErrorOfStatus,
    ::testing::Values(
        Mapping{absl::StatusCode::kInvalidArgument, 400, kInvalid, "", false},
        Mapping{absl::StatusCode::kFailedPrecondition, 400, kInvalid, "", false},
        Mapping{absl::StatusCode::kOutOfRange, 400, kInvalid, "context_length_exceeded", false},
        Mapping{absl::StatusCode::kCancelled, 400, kInvalid, "", false},
        Mapping{absl::StatusCode::kUnauthenticated, 401, kInvalid, "", false},
        Mapping{absl::StatusCode::kPermissionDenied, 403, kInvalid, "", false},
        Mapping{absl::StatusCode::kNotFound, 404, kInvalid, "model_not_found", false},
        Mapping{absl::StatusCode::kAlreadyExists, 409, kInvalid, "", false},
        Mapping{absl::StatusCode::kAborted, 409, kInvalid, "", false},
        Mapping{absl::StatusCode::kResourceExhausted, 429, "rate_limit_error",
                "rate_limit_exceeded", true},
        Mapping{absl::StatusCode::kUnimplemented, 501, kServer, "", false},
        Mapping{absl::StatusCode::kUnavailable, 503, kServer, "service_unavailable", true},
        Mapping{absl::StatusCode::kDeadlineExceeded, 504, kServer, "timeout", false},
        Mapping{absl::StatusCode::kInternal, 500, kServer, "", false},
        Mapping{absl::StatusCode::kDataLoss, 500, kServer, "", false},
        Mapping{absl::StatusCode::kUnknown, 500, kServer, "", false}));

TEST(ErrorTest, TheParamIsNullUnlessAFieldIsWrong) {
  const auto error = [](const ApiError& e) {
    return nlohmann::json::parse(ErrorJson(e)).at("error");
  };
  EXPECT_TRUE(error({.message = "m"}).at("param").is_null());
  EXPECT_EQ(error(InvalidField("stop", "m", "invalid_value")).at("param"), "stop");
}

TEST(ErrorTest, BytesThatAreNotUtf8DoNotBreakTheBody) {
  EXPECT_TRUE(nlohmann::json::accept(ErrorJson({.message = "\xff\xfe"})));
}

}  // namespace
}  // namespace baton::router
