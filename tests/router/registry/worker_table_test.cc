#include "router/registry/worker_table.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/request_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kTokenizer = 42;

WorkerReport ReadyReport(Incarnation incarnation = 1) {
  WorkerReport report;
  report.role = WorkerRole::kDecode;
  report.self = {.address = "10.0.0.1:7", .incarnation = incarnation};
  report.tokenizer_hash = kTokenizer;
  report.request_protocol = rpc::kRequestProtocol;
  report.ready = true;
  return report;
}

class WorkerTableTest : public ::testing::Test {
 protected:
  WorkerTableTest() { table_.SetMembers({kDecode}); }
  Worker Now() const { return table_.MakeSnapshot().workers[0]; }

  std::vector<std::string> Targets() const {
    std::vector<std::string> targets;
    for (const Worker& worker : table_.MakeSnapshot().workers) targets.push_back(worker.target);
    return targets;
  }

  const WorkerSpec kDecode = {.role = WorkerRole::kDecode, .target = "d:1"};
  const WorkerSpec kOther = {.role = WorkerRole::kDecode, .target = "d:2"};
  WorkerTable table_{{.tokenizer_hash = kTokenizer}};
  const Clock::TimePoint now_{seconds(1000)};
};

TEST_F(WorkerTableTest, AWorkerIsNotReadyBeforeItWasReached) {
  EXPECT_FALSE(Now().ready);
  EXPECT_FALSE(table_.AllPolled());
  EXPECT_EQ(Now().id.address, "d:1");
}

TEST_F(WorkerTableTest, AFittingReportMakesItReadyUnderItsAdvertisedAddress) {
  table_.OnReport(0, ReadyReport(), {});
  EXPECT_TRUE(Now().ready);
  EXPECT_TRUE(table_.AllPolled());
  EXPECT_EQ(Now().id, (WorkerId{"10.0.0.1:7", 1}));
  EXPECT_EQ(Now().target, "d:1");
}

TEST_F(WorkerTableTest, ANameIsThatOfTheIncarnationThatReportedIt) {
  WorkerReport report = ReadyReport(1);
  report.name = "decode-0";
  table_.OnReport(0, report, {});
  EXPECT_EQ(table_.MakeSnapshot().NameOf({"10.0.0.1:7", 1}), "decode-0");
  EXPECT_EQ(table_.MakeSnapshot().NameOf({"10.0.0.1:7", 2}), "");
  EXPECT_EQ(table_.MakeSnapshot().NameOf({}), "") << "no prefill worker served the answer";
  table_.OnReport(0, ReadyReport(2), {});
  EXPECT_EQ(table_.MakeSnapshot().NameOf({"10.0.0.1:7", 2}), "") << "started again without one";
}

TEST_F(WorkerTableTest, WithoutAnAdvertisedAddressTheDialledOneIsUsed) {
  WorkerReport report = ReadyReport();
  report.self.address = "";
  table_.OnReport(0, report, {});
  EXPECT_EQ(Now().id.address, "d:1");
}

TEST_F(WorkerTableTest, NamesWhyAReportDoesNotFit) {
  WorkerReport report = ReadyReport();
  report.role = WorkerRole::kPrefill;
  table_.OnReport(0, report, {});
  EXPECT_FALSE(Now().ready);
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("configured as decode but reports prefill"));
  report = ReadyReport();
  report.role.reset();
  table_.OnReport(0, report, {});
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("no role"));
  report = ReadyReport();
  report.tokenizer_hash = 0x43;
  table_.OnReport(0, report, {});
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("0000000000000043"));
  report = ReadyReport();
  report.ready = false;
  table_.OnReport(0, report, {});
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("draining"));
}

TEST_F(WorkerTableTest, AWorkerThatWouldPassOverWhatIsAskedIsNotUsedAndANewerOneIs) {
  WorkerReport report = ReadyReport();
  report.request_protocol = rpc::kRequestProtocol - 1;
  table_.OnReport(0, report, {});
  EXPECT_FALSE(Now().ready);
  EXPECT_THAT(Now().not_ready_reason,
              AllOf(HasSubstr(absl::StrCat("understands version ", rpc::kRequestProtocol - 1, " ")),
                    HasSubstr(absl::StrCat("router speaks version ", rpc::kRequestProtocol, ":"))));
  report.request_protocol = rpc::kRequestProtocol + 1;
  table_.OnReport(0, report, {});
  EXPECT_TRUE(Now().ready);
}

TEST_F(WorkerTableTest, AWorkerThatKnowsNoTokenizerFits) {
  WorkerReport report = ReadyReport();
  report.tokenizer_hash = 0;
  table_.OnReport(0, report, {});
  EXPECT_TRUE(Now().ready);
}

TEST_F(WorkerTableTest, ARefusedPollCountsAtOnce) {
  table_.OnReport(0, ReadyReport(), {});
  table_.OnPollFailed(0, absl::UnavailableError("connection refused"));
  EXPECT_FALSE(Now().ready);
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("connection refused"));
  table_.OnReport(0, ReadyReport(), {});
  EXPECT_TRUE(Now().ready);
}

TEST_F(WorkerTableTest, OneSlowPollIsForgivenTwoInARowAreNot) {
  table_.OnReport(0, ReadyReport(), {});
  table_.OnPollFailed(0, absl::DeadlineExceededError("slow"));
  EXPECT_TRUE(Now().ready);
  table_.OnReport(0, ReadyReport(), {});
  table_.OnPollFailed(0, absl::DeadlineExceededError("slow"));
  EXPECT_TRUE(Now().ready);
  table_.OnPollFailed(0, absl::DeadlineExceededError("slow"));
  EXPECT_FALSE(Now().ready);
}

TEST_F(WorkerTableTest, CoolsDownTwiceAsLongWithEachFailureInARowUpToALimit) {
  table_.OnReport(0, ReadyReport(), {});
  const WorkerId id = Now().id;
  for (const int expected : {2, 4, 8, 16, 30, 30}) {
    table_.OnRequestFailed(id, now_);
    EXPECT_EQ(Now().cooling_until, now_ + seconds(expected));
  }
  for (int i = 0; i < 100; ++i) table_.OnRequestFailed(id, now_);  // no overflow
  EXPECT_EQ(Now().cooling_until, now_ + seconds(30));
}

TEST_F(WorkerTableTest, ASuccessEndsTheCoolDown) {
  table_.OnReport(0, ReadyReport(), {});
  const WorkerId id = Now().id;
  EXPECT_FALSE(table_.OnRequestSucceeded(id));
  table_.OnRequestFailed(id, now_);
  EXPECT_TRUE(table_.OnRequestSucceeded(id));
  EXPECT_LT(Now().cooling_until, now_);
  table_.OnRequestFailed(id, now_);
  EXPECT_EQ(Now().cooling_until, now_ + seconds(2));
}

TEST_F(WorkerTableTest, ANewIncarnationStartsWithoutTheOldOnesFailures) {
  table_.OnReport(0, ReadyReport(1), {});
  table_.OnRequestFailed(Now().id, now_);
  table_.OnReport(0, ReadyReport(2), {});
  EXPECT_LT(Now().cooling_until, now_);
  table_.OnRequestFailed({"10.0.0.1:7", 1}, now_);  // late news of the old one
  EXPECT_LT(Now().cooling_until, now_);
}

TEST_F(WorkerTableTest, AReportOfTheSameIncarnationDoesNotEndACoolDown) {
  table_.OnReport(0, ReadyReport(1), {});
  table_.OnRequestFailed(Now().id, now_);
  table_.OnReport(0, ReadyReport(1), {});
  EXPECT_EQ(Now().cooling_until, now_ + seconds(2));
}

TEST_F(WorkerTableTest, MembersComeAndGoWithoutDisturbingTheOthers) {
  table_.OnReport(0, ReadyReport(), {});
  table_.SetMembers({kOther, kDecode, kOther});
  EXPECT_THAT(Targets(), ElementsAre("d:1", "d:2"));
  EXPECT_TRUE(Now().ready);
  EXPECT_FALSE(table_.AllPolled());
  table_.SetMembers({kOther});
  EXPECT_THAT(Targets(), ElementsAre("d:2"));
  table_.OnReport(0, ReadyReport(), {});  // late news of a worker that is gone
  EXPECT_FALSE(Now().ready);
  table_.SetMembers({kOther, kDecode});
  EXPECT_EQ(table_.MakeSnapshot().workers[1].key, 2u) << "keys are never used again";
}

TEST_F(WorkerTableTest, AWorkerThatLeavesFinishesWhatItHasAndGetsNothingNew) {
  table_.OnReport(0, ReadyReport(), {});
  auto lease = std::make_unique<WorkLease>(Now().open, 10);
  table_.SetMembers({});
  ASSERT_THAT(Targets(), ElementsAre("d:1"));
  EXPECT_FALSE(Now().ready);
  table_.OnReport(0, ReadyReport(), {});
  EXPECT_FALSE(Now().ready);
  EXPECT_THAT(Now().not_ready_reason, HasSubstr("no longer a member"));
  lease.reset();
  table_.OnReport(0, ReadyReport(), {});
  EXPECT_THAT(Targets(), IsEmpty());
}

TEST_F(WorkerTableTest, AWorkerThatDiesWhileItLeavesIsForgotten) {
  auto lease = std::make_unique<WorkLease>(Now().open, 10);
  table_.SetMembers({});
  table_.OnPollFailed(0, absl::UnavailableError("refused"));
  EXPECT_THAT(Targets(), ElementsAre("d:1"));
  lease.reset();
  table_.OnPollFailed(0, absl::UnavailableError("refused"));
  EXPECT_THAT(Targets(), IsEmpty());
}

TEST_F(WorkerTableTest, AWorkerThatComesBackWhileItLeavesHasNeverLeft) {
  const WorkLease lease(Now().open, 10);
  table_.SetMembers({});
  table_.SetMembers({kDecode});
  table_.OnReport(0, ReadyReport(), {});
  EXPECT_TRUE(Now().ready);
  EXPECT_EQ(Now().key, 0u);
  EXPECT_EQ(Now().open->requests, 1);
}

// Roles, readiness and semantics hashes; what is said of the first.
TEST(WorkerMismatchTest, IsSaidOfAReadyWorkerThatNoReadyOneOfTheOtherRoleFits) {
  const auto mismatch = [](bool split, uint64_t decode_hash, std::vector<uint64_t> prefill_hashes,
                           bool named = false) {
    WorkerTable table({.tokenizer_hash = kTokenizer, .prefill_is_split = split});
    std::vector<WorkerSpec> specs = {{.role = WorkerRole::kDecode, .target = "d:1"}};
    for (size_t i = 0; i < prefill_hashes.size(); ++i) {
      specs.push_back({.role = WorkerRole::kPrefill, .target = "p:" + std::to_string(i)});
    }
    table.SetMembers(specs);
    WorkerReport report = ReadyReport();
    report.semantics_hash = decode_hash;
    if (named) report.semantics = {{"index_topk", std::to_string(decode_hash)}, {"model", "m"}};
    table.OnReport(0, report, {});
    report.role = WorkerRole::kPrefill;
    for (size_t i = 0; i < prefill_hashes.size(); ++i) {
      report.semantics_hash = prefill_hashes[i];
      if (named) report.semantics["index_topk"] = std::to_string(prefill_hashes[i]);
      table.OnReport(i + 1, report, {});
    }
    return table.MakeSnapshot().workers[0];
  };
  const Worker alone = mismatch(true, 0xa, {0xb, 0xc});
  EXPECT_TRUE(alone.ready);
  EXPECT_FALSE(alone.Usable());
  EXPECT_THAT(alone.mismatch, AllOf(HasSubstr("000000000000000a"), HasSubstr("2 ready prefill"),
                                    HasSubstr("that of p:0 is 000000000000000b")));
  EXPECT_EQ(
      mismatch(true, 512, {64}, /*named=*/true).mismatch,
      "fits none of 1 ready prefill workers: the index_topk of d:1 is 512, that of p:0 is 64");
  EXPECT_TRUE(mismatch(true, 0xa, {0xb, 0xa}).Usable());
  EXPECT_TRUE(mismatch(true, 0xa, {}).Usable());
  EXPECT_TRUE(mismatch(false, 0xa, {0xb}).Usable());
}

}  // namespace
}  // namespace baton::router
