#include <filesystem>

#include "baton/v1/transfer.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/device_lane/lane_transport.h"
#include "kvtransfer/grpc/lane_stream.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "tests/kvtransfer/host_fabric.h"
#include "tests/kvtransfer/transport_cases.h"
#include "tests/testing/certificates.h"
#include "tests/testing/test_path.h"

// Device transports whose control lane is a call of Transfer.Lane.

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr size_t kGroupBytes = size_t{256} << 10;

ConnectLane ConnectWith(const rpc::Credentials& credentials) {
  return [credentials](std::string_view transport, const std::string& endpoint,
                       const StagingMemory& own) {
    return ConnectGrpcLane(transport, endpoint, own.bytes.size(), credentials);
  };
}

class GrpcLaneTest : public ::testing::Test {
 protected:
  explicit GrpcLaneTest(const rpc::Credentials& credentials = {})
      : connect_(ConnectWith(credentials)) {
    auto server = rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                                          .services = {service_.service()},
                                          .service_names = {"baton.v1.Transfer"},
                                          .credentials = credentials.server});
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    endpoint_ = absl::StrCat("127.0.0.1:", server_->port());
    auto lanes = LaneService::Start(&fabric_, receiver_.get(), Fd(), {.group_bytes = kGroupBytes});
    EXPECT_THAT(lanes, IsOk());
    lanes_ = *std::move(lanes);
    service_.ServeLanes("nccl", lanes_.get());
  }
  ~GrpcLaneTest() override {
    StopLanes();
    server_->Shutdown(std::chrono::seconds(1));
  }

  void StopLanes() {
    service_.ServeLanes("nccl", nullptr);
    lanes_.reset();
  }
  std::unique_ptr<Transport> NewTransport() {
    return *MakeLaneTransport(&fabric_, connect_, {.group_bytes = kGroupBytes});
  }

  const ConnectLane connect_;
  PairedHostFabric fabric_;
  TransferThread callbacks_;
  TransferThread transfer_thread_;
  const std::unique_ptr<Receiver> receiver_ = MakeReceiver(&callbacks_);
  TransferService service_{receiver_.get(), &transfer_thread_};
  std::unique_ptr<rpc::GrpcServer> server_;
  std::unique_ptr<LaneService> lanes_;
  std::string endpoint_;
};

TEST_F(GrpcLaneTest, MovesEveryByteOfManyHandoffs) {
  auto sender = MakeSender({}, NewTransport());
  MoveManyHandoffs(*sender, *receiver_, endpoint_, [](uint64_t i) { return Key(i); });
}

TEST_F(GrpcLaneTest, AProbeGoesOverTheDevice) {
  EXPECT_THAT(ProbeLane(fabric_, connect_, endpoint_), IsOk());
  StopLanes();
  EXPECT_THAT(ProbeLane(fabric_, connect_, endpoint_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no lanes of transport")));
  EXPECT_THAT(ProbeLane(fabric_, connect_, "127.0.0.1:1"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ended")));
}

TEST_F(GrpcLaneTest, AServiceThatEndsFailsWhatIsOutstanding) {
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.layout = testing::FlashLayout(), .key = Key(1), .endpoint = endpoint_});
  run.Expect(*receiver_);
  run.Open(*sender);
  run.handoff.Advance(*sender, 256);
  while (receiver_->stats().payload_bytes == 0) std::this_thread::yield();
  StopLanes();
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  receiver_->Abort(run.handoff.attempt(), absl::UnavailableError("the test ends it"));
  run.Received();
}

// Many of them could fill the memory before the lane's thread looks at the first.
TEST_F(GrpcLaneTest, AMessageThatIsLongerThanAnyEndsTheLane) {
  v1::Transfer::Stub stub(rpc::MakeChannel(endpoint_, rpc::ChannelKind::kControl));
  grpc::ClientContext context;
  rpc::SetTimeout(context, std::chrono::seconds(30));
  const auto lane = stub.Lane(&context);
  v1::LaneMessage message;
  message.set_packet(EncodeLaneHello("nccl", kGroupBytes));
  EXPECT_TRUE(lane->Write(message));
  ASSERT_TRUE(lane->Read(&message)) << "a lane begins";
  message.set_packet(EncodeLaneMessage({.generation = 1, .body = LaneReset{}}) +
                     std::string(1 << 20, 'x'));
  EXPECT_TRUE(lane->Write(message));
  while (lane->Read(&message)) {
  }
  EXPECT_EQ(lane->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

class GrpcLaneTlsTest : public GrpcLaneTest {
 protected:
  GrpcLaneTlsTest()
      : GrpcLaneTest(*rpc::LoadCredentials(
            {.files = testing::CertificateAuthority().Issue(testing::TestPath("grpc_lane"))})) {}
  ~GrpcLaneTlsTest() override { std::filesystem::remove_all(testing::TestPath("grpc_lane")); }
};

TEST_F(GrpcLaneTlsTest, ALaneIsForPeersOfTheCluster) {
  auto sender = MakeSender({}, NewTransport());
  MoveManyHandoffs(*sender, *receiver_, endpoint_, [](uint64_t i) { return Key(i); });
  EXPECT_THAT(ProbeLane(fabric_, ConnectWith({}), endpoint_),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace baton::kvtransfer
