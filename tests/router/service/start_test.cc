#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "router/dispatch/served_model.h"
#include "tests/common/rpc/health.h"
#include "tests/router/service/router_fixture.h"

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using baton::testing::IsOk;
using baton::testing::IsOkAndHolds;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kServing = 1;
constexpr int kNotServing = 2;
constexpr std::chrono::seconds kPatience(30);

int PortOf(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  return port;
}

// Where nobody listens.
std::string FreeAddress() {
  return absl::StrCat("127.0.0.1:", (*rpc::GrpcServer::Start({.listen = "127.0.0.1:0"}))->port());
}

class StartTest : public RouterFixture {};

TEST_F(StartTest, AnEntryThatIsNoAddressIsNamed) {
  RouterConfig config = Config();
  config.prefill_workers = {"prefill"};
  EXPECT_THAT(Router::Start(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'prefill'")));
}

TEST_F(StartTest, AnAddressInUseIsNamedWithItsFlagBeforeTheModelIsLoaded) {
  Start();
  const auto [http, grpc, metrics] = router_->ports();
  RouterConfig without_model = Config();
  without_model.model_dir = "/nowhere";
  EXPECT_THAT(Router::Start(without_model),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere")));
  for (const auto& [flag, port, field] :
       {std::tuple{"listen: ", http, &RouterConfig::listen},
        {"grpc-listen: ", grpc, &RouterConfig::grpc_listen},
        {"metrics-listen: ", metrics, &RouterConfig::metrics_listen}}) {
    RouterConfig config = without_model;
    config.*field = absl::StrCat("127.0.0.1:", port);
    EXPECT_THAT(Router::Start(config), StatusIs(absl::StatusCode::kUnavailable,
                                                AllOf(StartsWith(flag), HasSubstr(config.*field))));
  }
}

// A model that is loaded when the test lets it be.
class SlowModelTest : public StartTest {
 protected:
  ~SlowModelTest() override {
    if (starting_.joinable()) Load(absl::CancelledError("the test ends"));
  }

  // Returns when the ports are bound and the router waits for its model.
  void StartWaiting() {
    RouterConfig config = Config();
    config.listen = FreeAddress();
    config.grpc_listen = grpc_ = FreeAddress();
    http_ = PortOf(config.listen);
    starting_ = std::thread([this, config] {
      started_ = Router::Start(config, [&]() -> absl::StatusOr<ServedModel> {
        loads_.set_value();
        BATON_RETURN_IF_ERROR(may_load_.get_future().get());
        return ServedModel::Load(config.model_dir, config.model_name);
      });
    });
    ASSERT_EQ(loads_.get_future().wait_for(kPatience), std::future_status::ready);
  }
  void Load(absl::Status may = absl::OkStatus()) {
    may_load_.set_value(std::move(may));
    starting_.join();
  }

  int http_ = 0;
  std::string grpc_;
  std::promise<void> loads_;
  std::promise<absl::Status> may_load_;
  std::thread starting_;
  absl::StatusOr<std::unique_ptr<Router>> started_;
};

TEST_F(SlowModelTest, UntilTheModelIsLoadedEverybodyIsToldThatTheRouterStarts) {
  AnswerAlways("green.");
  ASSERT_NO_FATAL_FAILURE(StartWaiting());
  const HttpClient::Response health = Fetch(http_, "GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body).at("status"), "starting");
  EXPECT_EQ(Fetch(http_, "GET", "/version").status, 200);
  for (const auto& [method, path] : {std::pair{"POST", kChatPath}, {"GET", "/v1/models"}}) {
    const HttpClient::Response refused = Fetch(http_, method, path, Chat("x").dump());
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    EXPECT_EQ(ErrorOf(refused).at("message"), "the router is still starting");
  }
  EXPECT_THAT(rpc::Health(grpc_, ""), IsOkAndHolds(kNotServing));
  const auto stub = v1::Inference::NewStub(rpc::MakeChannel(grpc_, rpc::ChannelKind::kControl));
  const auto refused = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("still starting"));
  {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    EXPECT_THAT(rpc::FromGrpc(stub->ListModels(&context, {}, &models)), refused);
  }
  {
    grpc::ClientContext context;
    EXPECT_THAT(rpc::FromGrpc(stub->Generate(&context, {})->Finish()), refused);
  }

  Load();
  ASSERT_THAT(started_, IsOk());
  router_ = *std::move(started_);
  ASSERT_TRUE(WaitForReady(4));
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_THAT(rpc::Health(grpc_, ""), IsOkAndHolds(kServing));
}

TEST_F(SlowModelTest, AModelThatCannotBeLoadedEndsIt) {
  ASSERT_NO_FATAL_FAILURE(StartWaiting());
  EXPECT_EQ(Fetch(http_, "GET", "/health").status, 503);
  Load(absl::InvalidArgumentError("tokenizer.json is empty"));
  EXPECT_THAT(started_, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
}

}  // namespace
}  // namespace baton::router
