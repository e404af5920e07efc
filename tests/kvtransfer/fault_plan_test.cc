#include "kvtransfer/fault/fault_plan.h"

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/fault/fault_receiver.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = Fault::Kind;

class FaultPlanTest : public ::testing::Test {
 protected:
  ~FaultPlanTest() override { std::remove(path_.c_str()); }

  absl::StatusOr<FaultPlanFile> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadFaultPlan(path_);
  }

  const std::string path_ = baton::testing::TestPath("fault_plan").string() + ".yaml";
};

TEST_F(FaultPlanTest, ReadsBothPlanes) {
  BATON_ASSERT_OK_AND_ASSIGN(const FaultPlanFile plan, Read(R"(
seed: 7
frames:
  corrupt: 0.25
  drop_answer: 0.5
  max-duration: 50ms
  at:
    - {n: 3, fault: stall, duration: 2s}
    - {n: 4, fault: corrupt, bit: 96}
control:
  at: [{message: grant, fault: duplicate}]
)"));
  EXPECT_TRUE(plan.frames.active);
  EXPECT_EQ(plan.frames.seed, 7u);
  EXPECT_EQ(plan.frames.rates.corrupt, 0.25);
  EXPECT_EQ(plan.frames.rates.drop_answer, 0.5);
  EXPECT_EQ(plan.frames.rates.max_duration, std::chrono::milliseconds(50));
  ASSERT_EQ(plan.frames.at.size(), 2u);
  EXPECT_EQ(plan.frames.at[0].n, 3);
  EXPECT_EQ(plan.frames.at[0].fault.kind, Kind::kStall);
  EXPECT_EQ(plan.frames.at[0].fault.duration, std::chrono::seconds(2));
  EXPECT_EQ(plan.frames.at[1].fault.bit, 96u);
  EXPECT_TRUE(plan.control.active);
  ASSERT_EQ(plan.control.at.size(), 1u);
  EXPECT_EQ(plan.control.at[0].message, "grant");
  EXPECT_EQ(plan.control.at[0].n, 1);
}

TEST_F(FaultPlanTest, NamesFileLineAndWhatIsWrong) {
  const struct {
    const char* text;
    const char* line;
    const char* what;
  } cases[] = {
      {"frame: {}", ":1:", "unknown key \"frame\" in the plan; known are control, frames, seed"},
      {"frames:\n  drpo: 1", ":2:", "unknown key \"drpo\" in frames; known are at, corrupt, cut"},
      {"control:\n  drop-answer: 1", ":2:", "unknown key \"drop-answer\" in control"},
      {"frames:\n  drop: 1.5", ":2:", "drop is \"1.5\"; expected a probability, 0 to 1"},
      {"frames: {drop: 0.6, cut: 0.6}", ":1:", "probabilities add up to 1.2"},
      {"frames:\n  at:\n    - {n: 0, fault: cut}", ":3:", "n is \"0\"; expected a whole number"},
      {"frames:\n  at:\n    - {n: 1, fault: explode}", ":3:", "expected one of drop, drop-answer"},
      {"frames:\n  at:\n    - {n: 1}", ":3:", "no fault is named"},
      {"frames:\n  at:\n    - {fault: cut, message: grant}",
       ":3:", "unknown key \"message\" in at"},
      {"frames: {at: 3}", ":1:", "at is \"3\"; expected a list"},
      {"frames: {max-duration: soon}", ":1:", "max-duration is \"soon\"; expected a duration"},
      {"frames: [", ":", "yaml"},
      {"seed: many", ":1:", "seed is \"many\""},
      {"", ":1:", "the plan: expected"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.text);
    EXPECT_THAT(
        Read(bad.text),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(path_), HasSubstr(bad.line),
                       HasSubstr(std::string_view(bad.what) == "yaml" ? path_ : bad.what))));
  }
  EXPECT_THAT(ReadFaultPlan("/no/such/plan.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/plan.yaml")));
}

TEST_F(FaultPlanTest, IsRefusedUnlessAllowed) {
  ASSERT_THAT(Read("frames: {drop: 1}"), IsOk());
  EXPECT_THAT(LoadFaults({.fault_plan = path_}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--allow-faults")));
  BATON_ASSERT_OK_AND_ASSIGN(const FaultPlanFile plan,
                             LoadFaults({.allow_faults = true, .fault_plan = path_}));
  EXPECT_TRUE(plan.frames.active);
  BATON_ASSERT_OK_AND_ASSIGN(const FaultPlanFile none, LoadFaults({.allow_faults = true}));
  EXPECT_FALSE(none.frames.active || none.control.active);
}

TEST_F(FaultPlanTest, ADecodeWorkerCannotLoseWhatHasArrived) {
  for (const char* kind : {"drop", "drop-answer", "reorder", "cut"}) {
    BATON_ASSERT_OK_AND_ASSIGN(const FaultPlanFile plan,
                               Read(absl::StrCat("frames: {at: [{n: 1, fault: ", kind, "}]}")));
    EXPECT_THAT(CheckReceiverFaults(plan.frames),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prefill worker")))
        << kind;
  }
  BATON_ASSERT_OK_AND_ASSIGN(const FaultPlanFile plan, Read("frames: {corrupt: 0.5, stall: 0.5}"));
  EXPECT_THAT(CheckReceiverFaults(plan.frames), IsOk());
}

TEST(FaultDiceTest, CountsOverAllAndByMessage) {
  FaultDice dice({.at = {{.n = 2, .fault = {.kind = Kind::kCut}},
                         {.n = 2, .message = "grant", .fault = {.kind = Kind::kDrop}}}});
  EXPECT_EQ(dice.Next("open").kind, Kind::kNone);
  EXPECT_EQ(dice.Next("grant").kind, Kind::kCut);
  EXPECT_EQ(dice.Next("finished").kind, Kind::kNone);
  EXPECT_EQ(dice.Next("grant").kind, Kind::kDrop);
  EXPECT_EQ(dice.Next("grant").kind, Kind::kNone);
}

}  // namespace
}  // namespace baton::kvtransfer
