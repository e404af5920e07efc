#include "engine/model/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/cpu_model.h"
#include "engine/model/weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kLayers = 4;  // of each kind one, hash and score routing

TEST(DummyWeightsTest, KeepTheFirstLayersAndTheMtpBlock) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                             Checkpoint::OpenDummy(kModelDir, kLayers));
  EXPECT_EQ(checkpoint.config().num_hidden_layers, kLayers);
  EXPECT_THAT(checkpoint.config().compress_ratios, ElementsAre(0, 0, 4, 128, 0));
  EXPECT_EQ(checkpoint.config().num_hash_layers, 3);
  EXPECT_THAT(CheckTensors(checkpoint.config(), checkpoint.tensors()), baton::testing::IsOk());

  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint two, Checkpoint::OpenDummy(kModelDir, 2));
  EXPECT_EQ(two.config().num_hash_layers, 2);
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint all, Checkpoint::OpenDummy(kModelDir, 0));
  EXPECT_EQ(all.config().num_hidden_layers, 7);
  EXPECT_THAT(Checkpoint::OpenDummy(kModelDir, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("8 layers"), HasSubstr("it has 7"))));
}

TEST(DummyWeightsTest, AreTheSameForTheSameConfigOnly) {
  const auto hash = [](int layers) { return Checkpoint::OpenDummy(kModelDir, layers)->Hash(); };
  EXPECT_EQ(hash(kLayers), hash(kLayers));
  EXPECT_NE(hash(kLayers), hash(kLayers + 1));
}

// Whatever is read as a number is none of a kind that makes an op trivial.
TEST(DummyWeightsTest, HaveNoZerosAndDifferFromExpertToExpert) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                             Checkpoint::OpenDummy(kModelDir, kLayers));
  const auto bytes = [&](const std::string& name) {
    const auto view = checkpoint.tensor(name).bytes;
    const auto* const first = reinterpret_cast<const uint8_t*>(view.data());
    return std::vector<uint8_t>(first, first + view.size());
  };
  for (const uint8_t pair : bytes("layers.0.ffn.experts.0.w1.weight")) {
    ASSERT_NE(pair & 0x07, 0);
    ASSERT_NE(pair & 0x70, 0);
  }
  EXPECT_THAT(bytes("layers.2.attn.wq_a.weight"), Each(Not(0)));
  EXPECT_NE(bytes("layers.0.ffn.experts.0.w1.weight"), bytes("layers.0.ffn.experts.1.w1.weight"));
}

TEST(DummyWeightsTest, KeepActivationsFiniteAndTokensApart) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                             Checkpoint::OpenDummy(kModelDir, kLayers));
  BATON_ASSERT_OK_AND_ASSIGN(Weights weights, LoadWeights(checkpoint));
  CpuModel model(checkpoint.config(), std::move(weights), {.threads = 1});
  const CacheGeometry geometry =
      *MakeCacheGeometry(checkpoint.config(), {.page_tokens = 256, .pages = 1, .slots = 1});
  CacheStorage cache(geometry);
  std::vector<int32_t> tokens(140);  // an entry of 128 closes
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 37 % 1024);
  const std::vector<int32_t> pages = {0};
  const SequenceChunk chunk{.tokens = tokens, .start = 0, .pages = pages, .first_logits_row = 130};
  const ForwardResult result = model.Forward({&chunk, 1}, cache);

  double squares = 0;
  for (const float logit : result.logits) squares += logit * logit;
  const double size = std::sqrt(squares / static_cast<double>(result.logits.size()));
  EXPECT_GT(size, 0.1);
  EXPECT_LT(size, 10);
  std::vector<std::ptrdiff_t> best;
  for (size_t row = 0; row < 10; ++row) {
    const auto logits = result.logits.subspan(row * 1024, 1024);
    best.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::sort(best.begin(), best.end());
  EXPECT_GT(std::unique(best.begin(), best.end()) - best.begin(), 4);
}

TEST(DummyWeightsTest, ShapesOfTheLargeModelsAreThose) {
  const auto config = [](const std::string& name) {
    return ParseModelConfig(ReadFile(BATON_SOURCE_DIR "/models/shapes/" + name + "/config.json"));
  };
  BATON_ASSERT_OK_AND_ASSIGN(const ModelConfig flash, config("flash"));
  EXPECT_EQ(flash.layers_of(LayerKind::kWindow), 2);
  EXPECT_EQ(flash.layers_of(LayerKind::kCsa), 21);
  EXPECT_EQ(flash.layers_of(LayerKind::kHca), 20);
  BATON_ASSERT_OK_AND_ASSIGN(const ModelConfig pro, config("pro"));
  EXPECT_EQ(pro.layers_of(LayerKind::kCsa), 30);
  EXPECT_EQ(pro.layers_of(LayerKind::kHca), 31);
  // What the checkpoint's own inventory counts, tensors and bytes.
  const auto specs = ExpectedTensors(flash, /*fp4_experts=*/true);
  EXPECT_EQ(specs.size(), 69187u);
  int64_t bytes = 0;
  for (const auto& [name, spec] : specs) {
    int64_t size = TensorTypeBytes(spec.type);
    for (const int64_t extent : spec.shape) size *= extent;
    bytes += size;
  }
  EXPECT_EQ(bytes, 159609485896);
}

}  // namespace
}  // namespace baton::engine
