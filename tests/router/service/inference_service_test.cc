#include "router/inference_service.h"

#include <atomic>
#include <thread>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

// Stops whoever asks for the time: a generation service that takes long to start requests.
class StoppedClock final : public Clock {
 public:
  TimePoint Now() const override {
    MutexLock lock(mutex_);
    ++waiting_;
    changed_.NotifyAll();
    while (!running_) changed_.Wait(mutex_);
    --waiting_;
    return Clock::Real().Now();
  }
  bool WaitForOneWhoWaits() {
    MutexLock lock(mutex_);
    while (waiting_ == 0) {
      if (!changed_.WaitFor(mutex_, kPatience)) return false;
    }
    return true;
  }
  void Run() {
    MutexLock lock(mutex_);
    running_ = true;
    changed_.NotifyAll();
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(InferenceServiceTest, SlowStartsHoldUpNoOtherCallAndQueueUpToALimit) {
  BATON_ASSERT_OK_AND_ASSIGN(const ServedModel model,
                             ServedModel::Load(BATON_SOURCE_DIR "/models/needle-17m", ""));
  Metrics metrics("router");
  RouterMetrics router_metrics(metrics, "round-robin");
  StoppedClock clock;
  GenerationEnvironment environment;
  environment.metrics = &router_metrics;
  environment.clock = &clock;
  GenerationService service(&model, &environment, {});
  InferenceService inference(&router_metrics,
                             {.threads = 1, .max_waiting = 1, .max_waiting_bytes = 3000},
                             /*keys=*/nullptr);
  inference.Begin(&service);
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<rpc::GrpcServer> server,
                             rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                                                     .services = {&inference},
                                                     .service_names = {"baton.v1.Inference"}}));
  const std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(
      rpc::MakeChannel("127.0.0.1:" + std::to_string(server->port()), rpc::ChannelKind::kControl));

  // Refused for its model as soon as the service comes to look at it.
  std::vector<absl::Status> statuses(3);
  std::atomic<int> ended = 0;
  std::vector<std::thread> callers;
  const auto call = [&](size_t i) {
    callers.emplace_back([&stub, &ended, &status = statuses[i]] {
      grpc::ClientContext context;
      v1::GenerateRequest request;
      request.set_model("another");
      request.set_prompt("x");
      v1::GenerateResponse response;
      const auto reader = stub->Generate(&context, request);
      while (reader->Read(&response)) {
      }
      status = rpc::FromGrpc(reader->Finish());
      ++ended;
    });
  };
  call(0);
  EXPECT_TRUE(clock.WaitForOneWhoWaits());
  call(1);
  call(2);
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::ListModelsResponse models;
    EXPECT_THAT(rpc::FromGrpc(stub->ListModels(&context, {}, &models)), IsOk());
  }
  v1::GenerateRequest large;
  large.set_prompt(std::string(3000, 'x'));
  v1::GenerateRequest many;  // a few bytes each, but not in memory
  for (int i = 0; i < 100; ++i) many.mutable_chat()->add_messages();
  EXPECT_LT(many.ByteSizeLong(), 300u);
  for (const v1::GenerateRequest& request : {large, many}) {
    grpc::ClientContext context;
    EXPECT_THAT(rpc::FromGrpc(stub->Generate(&context, request)->Finish()),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many bytes")));
  }

  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (ended == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  clock.Run();
  for (std::thread& caller : callers) caller.join();

  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kNotFound));
  const bool second_waited = absl::IsNotFound(statuses[1]);
  EXPECT_THAT(statuses[second_waited ? 1 : 2], StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(statuses[second_waited ? 2 : 1],
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many requests wait")));
}

}  // namespace
}  // namespace baton::router
