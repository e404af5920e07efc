#pragma once

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// EXPECT_THAT(status_or_statusor, IsOk());
// EXPECT_THAT(statusor, IsOkAndHolds(3));
// EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("a.bin")));
// BATON_ASSERT_OK_AND_ASSIGN(auto value, Compute());

namespace baton::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P2(StatusIs, code, message_matcher,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message_matcher, std::string(status.message()),
                                       result_listener);
}
inline auto StatusIs(absl::StatusCode code) { return StatusIs(code, ::testing::_); }

MATCHER_P(IsOkAndHolds, value_matcher, "is OK and holds a matching value") {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

}  // namespace baton::testing

#define BATON_TEST_CONCAT_INNER(a, b) a##b
#define BATON_TEST_CONCAT(a, b) BATON_TEST_CONCAT_INNER(a, b)
#define BATON_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  BATON_ASSERT_OK_AND_ASSIGN_INNER(BATON_TEST_CONCAT(baton_result_, __LINE__), lhs, expr)
#define BATON_ASSERT_OK_AND_ASSIGN_INNER(result, lhs, expr) \
  auto result = (expr);                                     \
  ASSERT_THAT(result, ::baton::testing::IsOk());            \
  lhs = *std::move(result)
