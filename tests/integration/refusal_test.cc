#include <memory>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "engine/cache_description.h"
#include "engine/engine.h"
#include "engine/model_identity.h"
#include "engine/options_config.h"
#include "gtest/gtest.h"
#include "kvtransfer/manifest.h"
#include "tests/integration/prompts.h"
#include "tests/testing/cluster.h"
#include "tests/testing/status_matchers.h"

// Workers whose caches mean different things refuse each other and say which field it is.

namespace baton {
namespace {

using ::baton::testing::Cluster;
using ::baton::testing::ClusterOptions;
using ::baton::testing::Greedy;
using ::baton::testing::IsOk;
using ::baton::testing::Outcome;
using ::baton::testing::StatusIs;
using ::baton::testing::Text;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = BATON_SOURCE_DIR "/models/needle-17m";

engine::OptionsConfig SmallEngine() {
  engine::OptionsConfig config;
  config.model_dir = kModel;
  config.threads = 1;
  config.pages = 8;
  config.slots = 1;
  return config;
}

absl::StatusOr<kvtransfer::Manifest> ManifestOf(const engine::OptionsConfig& config) {
  BATON_ASSIGN_OR_RETURN(const engine::EngineOptions options, engine::MakeEngineOptions(config));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine,
                         engine::Engine::Create(options));
  BATON_ASSIGN_OR_RETURN(const engine::ModelIdentity identity,
                         engine::ReadModelIdentity(options.model_dir));
  return kvtransfer::MakeManifest(engine::DescribeCache(*engine, identity), {"grpc"});
}

void ExpectRefused(const kvtransfer::Manifest& ours, const kvtransfer::Manifest& theirs,
                   const std::string& field) {
  SCOPED_TRACE(field);
  EXPECT_THAT(kvtransfer::CheckCompatible(ours, theirs),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat("differ in ", field)), HasSubstr("local"),
                             HasSubstr("remote"))));
  EXPECT_FALSE(kvtransfer::CheckCompatible(theirs, ours).ok());
  EXPECT_NE(kvtransfer::SemanticsHash(ours), kvtransfer::SemanticsHash(theirs));
}

TEST(RefusalTest, EveryFieldOfARealManifestIsRefusedByItsName) {
  BATON_ASSERT_OK_AND_ASSIGN(const kvtransfer::Manifest ours, ManifestOf(SmallEngine()));
  std::vector<std::string> names;
  for (size_t i = 0; i < ours.semantics.size(); ++i) {
    kvtransfer::Manifest theirs = ours;
    theirs.semantics[i].second += "?";
    ExpectRefused(ours, theirs, ours.semantics[i].first);
    names.push_back(ours.semantics[i].first);
  }
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"model", "tokenizer", "numerics", "index_topk", "kv_format",
                                       "index_format", "mtp_layers", "handoff_protocol"}));
  for (size_t i = 0; i < ours.layout.streams.size(); ++i) {
    const std::string stream(CacheStreamName(ours.layout.streams[i].stream));
    kvtransfer::Manifest theirs = ours;
    theirs.layout.streams[i].format = RecordFormat::kFp4Index;
    ExpectRefused(ours, theirs, absl::StrCat("format of ", stream));
    theirs = ours;
    ++theirs.layout.streams[i].layers;
    ExpectRefused(ours, theirs, absl::StrCat("layers of ", stream));
    theirs = ours;
    ++theirs.layout.streams[i].record_bytes;
    ExpectRefused(ours, theirs, absl::StrCat("record bytes of ", stream));
    theirs = ours;
    theirs.layout.streams.erase(theirs.layout.streams.begin() + static_cast<std::ptrdiff_t>(i));
    ExpectRefused(ours, theirs, absl::StrCat("stream ", stream));
  }
}

struct Difference {
  const char* field;
  void (*change)(engine::OptionsConfig&);
};

// The same formats in memory are not the same numbers: numerics and index_topk.
class RefusalByWorkersTest : public ::testing::TestWithParam<Difference> {};

TEST_P(RefusalByWorkersTest, ADecodeWorkerNamesTheFieldAndStillServesByItself) {
  ClusterOptions options;
  options.tune_prefill = [](int, prefill::PrefillConfig& config) {
    GetParam().change(config.engine);
  };
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
  ASSERT_THAT(cluster, IsOk());
  const Outcome outcome = (*cluster)->Run(Text(100), Greedy(4));
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr(absl::StrCat("differ in ", GetParam().field))));
  EXPECT_THAT((*cluster)->RunLocally(Text(100), Greedy(4)).status, IsOk());
  EXPECT_THAT((*cluster)->CheckIdleAndEmpty(), IsOk());
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusalByWorkersTest,
    ::testing::Values(
        Difference{"numerics", [](engine::OptionsConfig& config) { config.numerics = "exact"; }},
        Difference{"index_topk", [](engine::OptionsConfig& config) { config.index_topk = 64; }},
        Difference{"kv_format",
                   [](engine::OptionsConfig& config) { config.kv_cache_dtype = "fp8"; }},
        Difference{"index_format",
                   [](engine::OptionsConfig& config) { config.index_cache_dtype = "fp8"; }}),
    [](const auto& info) { return std::string(info.param.field); });

}  // namespace
}  // namespace baton
