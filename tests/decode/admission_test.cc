#include "decode/admission.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(AdmissionTest, RefusesByNameWhenTheQueueIsFull) {
  Admission admission({.waiting = 2, .waiting_per_prefill = 8});
  EXPECT_THAT(admission.Enter(), IsOk());
  EXPECT_THAT(admission.Enter(), IsOk());
  EXPECT_THAT(admission.Enter(), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("the decode queue is full: 2")));
  admission.Leave();
  EXPECT_THAT(admission.Enter(), IsOk());
}

TEST(AdmissionTest, AStuckPrefillWorkerFillsItsOwnQuotaOnly) {
  Admission admission({.waiting = 8, .waiting_per_prefill = 2});
  const std::vector<std::string> candidates = {"stuck:1", "good:1"};
  EXPECT_EQ(admission.Assign(candidates, 0), 0u);
  EXPECT_EQ(admission.Assign(candidates, 0), 0u);
  EXPECT_EQ(admission.Assign(candidates, 0), 1u);
  EXPECT_EQ(admission.Assign(candidates, 0), 1u);
  EXPECT_EQ(admission.Assign(candidates, 0), 2u) << "both quotas are full";
  admission.Unassign("stuck:1");
  EXPECT_EQ(admission.Assign(candidates, 0), 0u);
}

TEST(AdmissionTest, AssignsNobodyBeforeTheGivenCandidate) {
  Admission admission({.waiting = 8, .waiting_per_prefill = 2});
  EXPECT_EQ(admission.Assign({"a:1", "b:1"}, 1), 1u);
  EXPECT_EQ(admission.Assign({"a:1", "b:1"}, 2), 2u);
  EXPECT_EQ(admission.Assign({}, 0), 0u);
}

}  // namespace
}  // namespace baton::decode
