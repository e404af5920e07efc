#include "kvtransfer/grpc/handshake.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

Manifest Local() {
  return {.semantics = {{"model_hash", "abc"}},
          .layout = testing::FlashLayout(),
          .page_tokens = 256,
          .rollback_rows = 8,
          .transports = {"shm", "grpc"}};
}

v1::HandshakeRequest RequestWith(const v1::Manifest& manifest) {
  v1::HandshakeRequest request;
  *request.mutable_manifest() = manifest;
  return request;
}

absl::StatusOr<v1::HandshakeResponse> Answer(const v1::Manifest& caller) {
  return AnswerHandshake(Local(), RequestWith(caller),
                         [](const std::string&) { return absl::OkStatus(); });
}

TEST(HandshakeTest, ManifestsTravelUnchanged) {
  const Manifest manifest = ManifestFromProto(ManifestToProto(Local()));
  EXPECT_EQ(manifest.semantics, Local().semantics);
  EXPECT_EQ(manifest.layout, Local().layout);
  EXPECT_EQ(manifest.page_tokens, 256u);
  EXPECT_EQ(manifest.rollback_rows, 8u);
  EXPECT_EQ(manifest.transports, Local().transports);
  EXPECT_EQ(SemanticsHash(manifest), SemanticsHash(Local()));
}

TEST(HandshakeTest, AnswersWithItsOwnManifestAndTheTransportThatBothHave) {
  Manifest caller = Local();
  caller.page_tokens = 128;
  caller.transports = {"grpc"};
  BATON_ASSERT_OK_AND_ASSIGN(const v1::HandshakeResponse response, Answer(ManifestToProto(caller)));
  EXPECT_EQ(response.transport(), "grpc");
  EXPECT_EQ(response.manifest().page_tokens(), 256u);
}

TEST(HandshakeTest, RefusesAnotherIndexFormatByName) {
  Manifest caller = Local();
  caller.layout.streams[1] = {CacheStream::kIndexKey, RecordFormat::kFp8Index, 21, 132};
  EXPECT_THAT(Answer(ManifestToProto(caller)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format of index_key")));
}

TEST(HandshakeTest, ValuesThatDoNotFitAreNotMistakenForKnownOnes) {
  v1::Manifest wrapped_stream = ManifestToProto(Local());
  wrapped_stream.mutable_streams(0)->set_stream(256 + 1);
  EXPECT_THAT(Answer(wrapped_stream),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stream csa_kv")));
  v1::Manifest wrapped_format = ManifestToProto(Local());
  wrapped_format.mutable_streams(0)->set_format(256 + 1);
  EXPECT_THAT(Answer(wrapped_format),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format of csa_kv")));
}

TEST(HandshakeTest, RefusesCallersWithoutACommonTransport) {
  Manifest caller = Local();
  caller.transports = {"nccl"};
  EXPECT_THAT(Answer(ManifestToProto(caller)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("[nccl]")));
}

TEST(HandshakeTest, FallsBackWithTheReasonAndNeverToNothing) {
  const v1::HandshakeRequest request = RequestWith(ManifestToProto(Local()));
  const auto without = [](std::string broken) {
    return [broken](const std::string& transport) {
      return transport == broken || broken == "all" ? absl::UnavailableError("other machine")
                                                    : absl::OkStatus();
    };
  };
  BATON_ASSERT_OK_AND_ASSIGN(const v1::HandshakeResponse best,
                             AnswerHandshake(Local(), request, without("")));
  EXPECT_EQ(best.transport(), "shm");
  EXPECT_EQ(best.refused_size(), 0);
  BATON_ASSERT_OK_AND_ASSIGN(const v1::HandshakeResponse second,
                             AnswerHandshake(Local(), request, without("shm")));
  EXPECT_EQ(second.transport(), "grpc");
  ASSERT_EQ(second.refused_size(), 1);
  EXPECT_EQ(second.refused(0).transport(), "shm");
  EXPECT_EQ(second.refused(0).reason(), "other machine");
  EXPECT_THAT(AnswerHandshake(Local(), request, without("all")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("shm: other machine; grpc: other machine")));

  Metrics registry("prefill");
  WorkerMetrics metrics(registry);
  CountTransports(second, metrics);
  EXPECT_EQ(metrics.transports_chosen[TransportLabel::kGrpc].Value(), 1);
  EXPECT_EQ(metrics.transports_refused[TransportLabel::kShm].Value(), 1);
}

}  // namespace
}  // namespace baton::kvtransfer
