#include "common/status_macros.h"

#include <memory>

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;

constexpr char kUrl[] = "type.googleapis.com/x";

absl::Status Failure() {
  absl::Status status = absl::NotFoundError("no such file");
  status.SetPayload(kUrl, absl::Cord("payload"));
  return status;
}

absl::Status Read(const absl::Status& inner, int line) {
  BATON_RETURN_IF_ERROR(inner) << "reading " << std::string_view("a.bin") << ", line " << line;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Double(absl::StatusOr<std::unique_ptr<int>> input) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, std::move(input));
  return std::make_unique<int>(*value * 2);
}

TEST(StatusMacrosTest, AnErrorReturnsWithContextInFrontAndItsPayloads) {
  const absl::Status status = Read(Failure(), 7);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "reading a.bin, line 7: no such file"));
  EXPECT_EQ(status.GetPayload(kUrl), absl::Cord("payload"));
}

TEST(StatusMacrosTest, OkGoesOn) { EXPECT_THAT(Read(absl::OkStatus(), 1), IsOk()); }

TEST(StatusMacrosTest, AssignMovesTheValueOrReturnsTheError) {
  EXPECT_THAT(Double(std::make_unique<int>(4)), IsOkAndHolds(::testing::Pointee(8)));
  EXPECT_THAT(Double(Failure()), StatusIs(absl::StatusCode::kNotFound, "no such file"));
}

}  // namespace
}  // namespace baton
