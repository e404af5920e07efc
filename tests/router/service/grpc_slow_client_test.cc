#include <climits>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/status.h"
#include "grpcpp/create_channel.h"
#include "tests/router/service/router_fixture.h"

namespace baton::router {
namespace {

using baton::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Takes nothing of its answer until it is told to.
class SlowClient final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  explicit SlowClient(v1::Inference::Stub& stub) {
    request_.set_prompt("x");
    stub.async()->Generate(&context_, &request_, this);
    AddHold();
    StartCall();
  }
  // Taking its time over each message; ends the call after the last that it wants.
  absl::Status ReadToTheEnd(milliseconds each = {}, int most = INT_MAX) {
    each_ = each;
    most_ = most;
    StartRead(&response_);
    RemoveHold();
    return end_.get_future().get();
  }
  int read() const { return read_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (++read_ == most_) return context_.TryCancel();
    std::this_thread::sleep_for(each_);
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override { end_.set_value(rpc::FromGrpc(status)); }

  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  milliseconds each_{};
  int most_ = 0;
  int read_ = 0;
  std::promise<absl::Status> end_;
};

class GrpcSlowClientTest : public RouterFixture {
 protected:
  // The only decode worker says more than a connection holds, and goes on.
  GrpcSlowClientTest() {
    decode_.pop_back();
    decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
      v1::DecodeGenerateResponse message;
      for (int i = 0; i < 1000; ++i) message.add_token_ids(request.prompt_tokens(0));
      constexpr size_t kMessages = 200;  // of some kilobytes
      return Plan{.messages = std::vector(kMessages, message), .status = {}, .hang = true};
    });
  }
  // One whose window for a stream stays at 64 KiB.
  std::unique_ptr<SlowClient> Ask() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    stub_ = v1::Inference::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                  grpc::InsecureChannelCredentials(), arguments));
    return std::make_unique<SlowClient>(*stub_);
  }

 private:
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(GrpcSlowClientTest, OneThatLetsTooMuchWaitHearsOfItAndNothingMoreIsGenerated) {
  RouterConfig config = Config();
  config.max_unread_bytes = 64 << 10;
  Start(config);
  ASSERT_TRUE(WaitForReady(3));
  const std::unique_ptr<SlowClient> client = Ask();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
  EXPECT_THAT(client->ReadToTheEnd(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("reads too slowly")));
}

TEST_F(GrpcSlowClientTest, OneThatTakesNothingForTooLongIsCutOff) {
  RouterConfig config = Config();
  config.write_timeout = milliseconds(20);
  Start(config);
  ASSERT_TRUE(WaitForReady(3));
  const std::unique_ptr<SlowClient> client = Ask();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
  EXPECT_THAT(client->ReadToTheEnd(), StatusIs(absl::StatusCode::kCancelled));
}

// It tells of what it has read only once that is much of its window.
TEST_F(GrpcSlowClientTest, OneThatReadsSlowlyIsNotCutOff) {
  RouterConfig config = Config();
  config.write_timeout = milliseconds(100);
  Start(config);
  ASSERT_TRUE(WaitForReady(3));
  constexpr int kMost = 150;
  const std::unique_ptr<SlowClient> client = Ask();
  EXPECT_THAT(client->ReadToTheEnd(milliseconds(10), kMost),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(client->read(), kMost);
}

}  // namespace
}  // namespace baton::router
