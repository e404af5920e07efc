#include "kvtransfer/manifest.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Manifest Base() {
  return {.semantics = {{"model_hash", "abc"}, {"tokenizer_hash", "def"}, {"index_topk", "512"}},
          .layout = testing::FlashLayout(),
          .page_tokens = 256,
          .rollback_rows = 8,
          .transports = {"shm", "grpc"}};
}

uint64_t HashOf(std::vector<std::pair<std::string, std::string>> semantics) {
  Manifest manifest;
  manifest.semantics = std::move(semantics);
  return SemanticsHash(manifest);
}

TEST(ManifestTest, HashIsTheSameInEveryProcessAndBuild) {
  // Written down once; another value would make workers of two builds refuse one another.
  EXPECT_EQ(SemanticsHash(Manifest{}), 0xA8C7F832281A39C5u);
  EXPECT_EQ(HashOf({{"model_hash", "abc"}}), 0x589CFF906F007D41u);
}

TEST(ManifestTest, HashIgnoresOrderAndWhatMayDiffer) {
  Manifest other = Base();
  std::reverse(other.semantics.begin(), other.semantics.end());
  std::reverse(other.layout.streams.begin(), other.layout.streams.end());
  other.page_tokens = 128;
  other.rollback_rows = 2;
  other.transports = {"nccl"};
  EXPECT_EQ(SemanticsHash(other), SemanticsHash(Base()));
  EXPECT_THAT(CheckCompatible(Base(), other), IsOk());
}

struct Difference {
  const char* name;
  void (*change)(Manifest&);
  const char* field;
  const char* local;
  const char* remote;
};

TEST(ManifestTest, NamesTheFirstFieldThatDiffersWithBothValues) {
  const Difference differences[] = {
      {"value", [](Manifest& m) { m.semantics[0].second = "xyz"; }, "model_hash", "local abc",
       "remote xyz"},
      {"absent there", [](Manifest& m) { m.semantics.pop_back(); }, "index_topk", "local 512",
       "remote has no such field"},
      {"absent here", [](Manifest& m) { m.semantics.emplace_back("numerics", "exact"); },
       "numerics", "local has no such field", "remote exact"},
      {"stream absent", [](Manifest& m) { m.layout.streams.pop_back(); }, "stream mtp_carry",
       "local has it", "remote has none"},
      {"pool format",
       [](Manifest& m) {
         m.layout.streams[0].format = RecordFormat::kFp8Packed;
         m.layout.streams[0].record_bytes = 584;
       },
       "format of csa_kv", "local bf16", "remote fp8_packed"},
      {"index key format",
       [](Manifest& m) { m.layout.streams[1].format = RecordFormat::kFp8Index; },
       "format of index_key", "local bf16", "remote fp8_index"},
      {"layers", [](Manifest& m) { m.layout.streams[2].layers = 19; }, "layers of hca_kv",
       "local 20", "remote 19"},
      {"unknown stream",
       [](Manifest& m) {
         m.layout.streams.push_back({static_cast<CacheStream>(12), RecordFormat::kBf16, 1, 1});
       },
       "number of streams", "local 11", "remote 12"},
      {"repeated stream", [](Manifest& m) { m.layout.streams.push_back(m.layout.streams.back()); },
       "number of streams", "local 11", "remote 12"},
      {"repeated field", [](Manifest& m) { m.semantics.push_back(m.semantics.back()); },
       "number of fields", "local 3", "remote 4"},
      {"record bytes", [](Manifest& m) { m.layout.streams[3].record_bytes = 512; },
       "record bytes of window_kv", "local 1024", "remote 512"},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    Manifest remote = Base();
    difference.change(remote);
    EXPECT_THAT(CheckCompatible(Base(), remote),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(difference.field), HasSubstr(difference.local),
                               HasSubstr(difference.remote))));
    EXPECT_FALSE(CheckCompatible(remote, Base()).ok());
    EXPECT_NE(SemanticsHash(remote), SemanticsHash(Base()));
  }
}

TEST(ManifestTest, HashDoesNotConfuseNamesWithValues) {
  EXPECT_NE(HashOf({{"ab", "c"}}), HashOf({{"a", "bc"}}));
  EXPECT_NE(HashOf({{"a", ""}, {"b", ""}}), HashOf({{"a", "b"}}));
}

TEST(ManifestTest, FindsTheTransportsThatBothHaveByTheLocalOrder) {
  Manifest remote = Base();
  remote.transports = {"grpc", "shm"};
  EXPECT_THAT(CommonTransports(Base(), remote), IsOkAndHolds(ElementsAre("shm", "grpc")));
  remote.transports = {"nccl", "grpc"};
  EXPECT_THAT(CommonTransports(Base(), remote), IsOkAndHolds(ElementsAre("grpc")));
}

TEST(ManifestTest, ConfiguredTransportsAreKnownAndThereOnce) {
  EXPECT_THAT(CheckTransportNames({"grpc", "shm"}, "cpu"), IsOk());
  EXPECT_THAT(CheckTransportNames({"cuda_ipc", "nccl", "grpc"}, "cuda"), IsOk());
  EXPECT_THAT(CheckTransportNames({"nccl", "grpc"}, "cpu"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device is \"cpu\"")));
  EXPECT_THAT(CheckTransportNames({"shm", "rdma"}, "cpu"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"rdma\" is unknown")));
  EXPECT_THAT(CheckTransportNames({"shm", "shm"}, "cpu"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(CheckTransportNames({}, "cpu"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none")));
}

TEST(ManifestTest, RefusesPeersWithoutACommonTransportAndListsBoth) {
  Manifest remote = Base();
  remote.transports = {"nccl", "rdma"};
  EXPECT_THAT(CommonTransports(Base(), remote),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("[shm, grpc]"), HasSubstr("[nccl, rdma]"))));
  EXPECT_FALSE(CommonTransports(Base(), Manifest{}).ok());
}

}  // namespace
}  // namespace baton::kvtransfer
