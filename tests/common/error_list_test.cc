#include "common/error_list.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;

TEST(ErrorListTest, NoneIsOkAndOneStaysAsItIs) {
  ErrorList errors;
  errors.Add(absl::OkStatus());
  EXPECT_THAT(errors.ToStatus(), IsOk());
  errors.Add(absl::NotFoundError("cannot open a"));
  EXPECT_THAT(errors.ToStatus(), StatusIs(absl::StatusCode::kNotFound, "cannot open a"));
}

TEST(ErrorListTest, SeveralStandOneALineThoseOfListsToo) {
  ErrorList inner;
  inner.Add(absl::DataLossError("cannot read b"));
  inner.Add(absl::InvalidArgumentError("c is no JSON"));
  ErrorList errors;
  errors.Add(absl::NotFoundError("cannot open a"));
  errors.Add(inner.ToStatus());
  EXPECT_THAT(errors.ToStatus(),
              StatusIs(absl::StatusCode::kNotFound,
                       "3 errors:\n  cannot open a\n  cannot read b\n  c is no JSON"));
}

}  // namespace
}  // namespace baton
