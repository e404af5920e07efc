#include "router/registry/poller.h"

#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_worker.h"

namespace baton::router {
namespace {

using baton::testing::FakeWorker;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Registry with one worker of each role and a way to wait for what it learns.
class PollerTest : public ::testing::Test {
 protected:
  PollerTest() { registry_.SetMembers({Prefill(), Decode()}); }

  bool WaitFor(const std::function<bool(const Snapshot&)>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(10);
    while (!condition(*registry_.Current())) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  WorkerSpec Prefill() const { return {WorkerRole::kPrefill, prefill_.address()}; }
  WorkerSpec Decode() const { return {WorkerRole::kDecode, decode_->address()}; }

  FakeWorker prefill_{v1::WORKER_ROLE_PREFILL};
  std::unique_ptr<FakeWorker> decode_ = std::make_unique<FakeWorker>(v1::WORKER_ROLE_DECODE);
  Registry registry_{{}};
  WorkerPoller poller_{&registry_, {.interval = milliseconds(10), .deadline = seconds(1)}};
};

TEST_F(PollerTest, LearnsWhoTheWorkersAreAndWhatTheyReport) {
  decode_->SetInfo([](v1::GetInfoResponse& info) {
    info.set_name("decode-0");
    info.set_semantics_hash(11);
    v1::ManifestField* field = info.add_semantics();
    field->set_name("kv_format");
    field->set_value("bf16");
    info.mutable_load()->set_running_requests(3);
  });
  ASSERT_TRUE(WaitFor([](const Snapshot& snapshot) {
    return snapshot.CountReady(WorkerRole::kPrefill) == 1 &&
           snapshot.CountReady(WorkerRole::kDecode) == 1 &&
           snapshot.workers[1].load.running_requests == 3;
  }));
  EXPECT_TRUE(registry_.WaitFirstPolls(seconds(0)));
  const std::shared_ptr<const Snapshot> snapshot = registry_.Current();
  EXPECT_EQ(snapshot->workers[1].id.incarnation, decode_->self().incarnation());
  EXPECT_EQ(snapshot->workers[1].name, "decode-0");
  EXPECT_EQ(snapshot->workers[1].semantics_hash, 11u);
  EXPECT_EQ(snapshot->workers[1].semantics->at("kv_format"), "bf16");
  EXPECT_EQ(snapshot->workers[1].max_context_tokens, 4096u);
}

TEST_F(PollerTest, NoticesThatAWorkerDrains) {
  ASSERT_TRUE(WaitFor([](const Snapshot& s) { return s.CountReady(WorkerRole::kDecode) == 1; }));
  decode_->SetInfo([](v1::GetInfoResponse& info) { info.set_ready(false); });
  EXPECT_TRUE(WaitFor([](const Snapshot& s) { return s.CountReady(WorkerRole::kDecode) == 0; }));
}

TEST_F(PollerTest, NoticesThatAWorkerIsGoneWhileOthersStay) {
  ASSERT_TRUE(WaitFor([](const Snapshot& s) { return s.CountReady(WorkerRole::kDecode) == 1; }));
  decode_.reset();
  EXPECT_TRUE(WaitFor([](const Snapshot& s) { return s.CountReady(WorkerRole::kDecode) == 0; }));
  EXPECT_EQ(registry_.Current()->CountReady(WorkerRole::kPrefill), 1);
}

TEST_F(PollerTest, FollowsWorkersThatComeAndGo) {
  registry_.SetMembers({Decode()});
  ASSERT_TRUE(WaitFor([](const Snapshot& s) {
    return s.workers.size() == 1 && s.CountReady(WorkerRole::kDecode) == 1;
  }));
  registry_.SetMembers({Decode(), Prefill()});
  ASSERT_TRUE(WaitFor([](const Snapshot& s) { return s.CountReady(WorkerRole::kPrefill) == 1; }));
}

}  // namespace
}  // namespace baton::router
