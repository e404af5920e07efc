#include "common/rpc/status.h"

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton::rpc {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;

v1::FailureDetail Detail(v1::FailureDetail::Leg leg) {
  v1::FailureDetail detail;
  detail.set_leg(leg);
  detail.mutable_peer()->set_address("10.0.0.7:7001");
  detail.mutable_peer()->set_incarnation(42);
  return detail;
}

TEST(RpcStatusTest, EveryCodeAndMessageSurvivesTheWire) {
  EXPECT_THAT(FromGrpc(ToGrpc(absl::OkStatus())), IsOk());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "page 7 is gone");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
}

TEST(RpcStatusTest, PayloadsSurviveTheWire) {
  absl::Status status = absl::UnavailableError("gone");
  AttachFailureDetail(Detail(v1::FailureDetail::LEG_PREFILL), status);
  status.SetPayload("type.googleapis.com/other", absl::Cord(std::string("\0\xff", 2)));
  const absl::Status received = FromGrpc(ToGrpc(status));
  EXPECT_EQ(received, status);
  const auto detail = GetFailureDetail(received);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->leg(), v1::FailureDetail::LEG_PREFILL);
  EXPECT_EQ(detail->peer().address(), "10.0.0.7:7001");
  EXPECT_EQ(detail->peer().incarnation(), 42u);
}

TEST(RpcStatusTest, ALaterDetailReplacesAnEarlierOne) {
  absl::Status status = absl::UnavailableError("gone");
  AttachFailureDetail(Detail(v1::FailureDetail::LEG_PREFILL), status);
  AttachFailureDetail(Detail(v1::FailureDetail::LEG_TRANSFER), status);
  EXPECT_EQ(GetFailureDetail(status)->leg(), v1::FailureDetail::LEG_TRANSFER);
}

TEST(RpcStatusTest, AbsentOrUnreadableDetailsAreNone) {
  EXPECT_FALSE(GetFailureDetail(absl::InternalError("x")).has_value());
  EXPECT_FALSE(GetFailureDetail(absl::OkStatus()).has_value());
  const grpc::Status garbled(grpc::StatusCode::INTERNAL, "x", "\xff\xff\xff");
  EXPECT_THAT(FromGrpc(garbled), StatusIs(absl::StatusCode::kInternal, "x"));
  EXPECT_FALSE(GetFailureDetail(FromGrpc(garbled)).has_value());
}

}  // namespace
}  // namespace baton::rpc
