#include "worker/worker.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/request_protocol.h"
#include "common/rpc/worker_control_client.h"
#include "gmock/gmock.h"
#include "tests/common/rpc/health.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"
#include "tests/worker/plain_role.h"

namespace baton::worker {
namespace {

using ::baton::rpc::Health;
using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::seconds kTimeout{10};
constexpr int kServing = 1;
constexpr int kNotServing = 2;

WorkerConfig Config() {
  WorkerConfig config;
  config.listen = "127.0.0.1:0";
  config.metrics_listen = "";
  config.transports = {"grpc"};
  config.engine.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
  config.engine.threads = 1;
  config.engine.pages = 8;
  config.engine.slots = 1;
  return config;
}

absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerConfig& config) {
  return Worker::Start(config, std::make_unique<PlainRole>());
}

// A folder in which no model is: whatever comes after the ports fails.
WorkerConfig WithoutModel() {
  WorkerConfig config = Config();
  config.engine.model_dir = testing::TestPath("model");
  std::filesystem::create_directories(config.engine.model_dir);
  return config;
}

TEST(WorkerTest, SaysWhoItIsAndWhatItHasToDo) {
  WorkerConfig config = Config();
  config.name = "decode-0";
  const auto worker = Start(config);
  ASSERT_THAT(worker, IsOk());
  const auto info = rpc::WorkerControlClient((*worker)->address()).GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->role(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(info->name(), "decode-0");
  EXPECT_EQ(info->model(), "needle-17m");
  EXPECT_NE(info->semantics_hash(), 0u);
  EXPECT_GT(info->semantics_size(), 0);
  EXPECT_GT(info->max_context_tokens(), 0u);
  EXPECT_EQ(info->self().address(), (*worker)->address());
  EXPECT_EQ(info->metrics_address(), "");
  EXPECT_EQ(info->request_protocol(), rpc::kRequestProtocol);
  EXPECT_TRUE(info->ready());
  EXPECT_EQ(info->load().queued_tokens(), 3u);
  EXPECT_THAT((*worker)->ListeningLine(), StartsWith("listening grpc=127.0.0.1:"));
}

TEST(WorkerTest, SaysWhereItsMetricsAreAsOthersReachIt) {
  WorkerConfig config = Config();
  config.metrics_listen = "0.0.0.0:0";
  const auto worker = Start(config);
  ASSERT_THAT(worker, IsOk());
  const auto info = rpc::WorkerControlClient((*worker)->address()).GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_THAT(info->metrics_address(), StartsWith("127.0.0.1:"));
}

// Begin comes when the model is loaded, and the last before the worker serves.
TEST(WorkerTest, ItsPortIsBoundBeforeItServes) {
  auto role = std::make_unique<PlainRole>();
  int begun = 0;
  role->on_begin = [&begun](const Loaded& loaded) {
    ++begun;
    const std::string address = loaded.self.address();
    EXPECT_THAT(Health(address, ""), IsOkAndHolds(kNotServing));
    EXPECT_THAT(rpc::WorkerControlClient(address).GetInfo(kTimeout),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("loading")));
  };
  const auto worker = Worker::Start(Config(), std::move(role));
  ASSERT_THAT(worker, IsOk());
  EXPECT_EQ(begun, 1);
  EXPECT_THAT(Health((*worker)->address(), ""), IsOkAndHolds(kServing));
}

TEST(WorkerTest, ATakenPortIsToldBeforeTheModelIsLoaded) {
  const auto first = Start(Config());
  ASSERT_THAT(first, IsOk());
  WorkerConfig config = WithoutModel();
  EXPECT_THAT(Start(config), StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
  config.listen = (*first)->address();
  EXPECT_THAT(Start(config), StatusIs(absl::StatusCode::kUnavailable,
                                      AllOf(StartsWith("listen: "), HasSubstr(config.listen))));
  config.listen = "127.0.0.1:0";
  config.metrics_listen = (*first)->address();
  EXPECT_THAT(Start(config),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(StartsWith("metrics-listen: "), HasSubstr(config.metrics_listen))));
}

TEST(WorkerTest, IsKnownByTheAddressThatItAdvertises) {
  WorkerConfig config = Config();
  config.advertise = "worker.example:7002";
  const auto worker = Start(config);
  ASSERT_THAT(worker, IsOk());
  EXPECT_EQ((*worker)->address(), "worker.example:7002");
}

TEST(WorkerTest, ADrainedWorkerIsNotReadyAndAStoppedOneIsGone) {
  auto role = std::make_unique<PlainRole>();
  PlainRole& plain = *role;
  const auto worker = Worker::Start(Config(), std::move(role));
  ASSERT_THAT(worker, IsOk());
  const rpc::WorkerControlClient client((*worker)->address());
  EXPECT_THAT(client.Drain(kTimeout), IsOk());
  EXPECT_THAT(Health((*worker)->address(), ""), IsOkAndHolds(kNotServing));
  const auto info = client.GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_FALSE(info->ready());
  EXPECT_TRUE((*worker)->Drain(kTimeout));
  EXPECT_EQ(plain.drains, 2);
  (*worker)->Stop();
  (*worker)->Stop();
  EXPECT_EQ(plain.stops, 1);
  EXPECT_THAT(client.GetInfo(kTimeout), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace baton::worker
