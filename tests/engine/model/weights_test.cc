#include "engine/model/weights.h"

#include <cstring>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<Weights> LoadChanged(const TestTensors& tensors) {
  const TempDir dir;
  dir.Write("config.json", ReadFile(kModelDir + "/config.json"));
  dir.Write("model.safetensors", BuildSafetensors(tensors));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadWeights(*checkpoint);
}

TEST(WeightsTest, LoadsEveryLayerWithWhatItsKindNeeds) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(kModelDir));
  BATON_ASSERT_OK_AND_ASSIGN(const Weights weights, LoadWeights(checkpoint));
  ASSERT_EQ(weights.layers.size(), 7u);
  for (int layer = 0; layer < 7; ++layer) {
    const LayerWeights& loaded = weights.layers[layer];
    const LayerKind kind = checkpoint.config().layer_kind(layer);
    EXPECT_EQ(loaded.attention.compressor.has_value(), kind != LayerKind::kWindow) << layer;
    EXPECT_EQ(loaded.attention.indexer.has_value(), kind == LayerKind::kCsa) << layer;
    EXPECT_EQ(loaded.moe.bias.empty(), layer < 3) << layer;
    EXPECT_EQ(loaded.moe.hash_experts.empty(), layer >= 3) << layer;
    EXPECT_EQ(loaded.moe.routed.size(), 8u) << layer;
    EXPECT_EQ(loaded.attention.wo_a.size(), 2u) << layer;
    EXPECT_TRUE(loaded.hc_attention.fn.is_f32()) << layer;
  }
  EXPECT_TRUE(weights.mtp.has_value());
  EXPECT_EQ(weights.embedding.size(), 1024u * 256);
}

TEST(WeightsTest, HashTablesMayOnlyNameExpertsThatExist) {
  for (const int64_t id : {int64_t{8}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    TestTensors tensors = ModelTensors();
    std::memcpy(tensors["layers.1.ffn.gate.tid2eid"].bytes.data() + 40, &id, sizeof(id));
    EXPECT_THAT(LoadChanged(tensors), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("layers.1.ffn.gate.tid2eid names expert " +
                                                         std::to_string(id))));
  }
}

TEST(WeightsTest, ValuesThatAreNotFiniteAreNamed) {
  TestTensors tensors = ModelTensors();
  tensors["layers.3.attn.wq_b.scale"].bytes[0] = '\xff';  // E8M0 NaN
  tensors["layers.4.ffn.experts.2.w2.scale"].bytes[7] = '\xff';
  tensors["mtp.0.attn.wkv.weight"].bytes[9] = '\x7f';  // E4M3 NaN
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(tensors["layers.0.attn.attn_sink"].bytes.data(), &infinity, sizeof(infinity));
  EXPECT_THAT(
      LoadChanged(tensors),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("layers.3.attn.wq_b has a value that is not finite"),
                     HasSubstr("layers.4.ffn.experts.2.w2 has"), HasSubstr("mtp.0.attn.wkv has"),
                     HasSubstr("layers.0.attn.attn_sink has"))));
}

TEST(WeightsTest, Fp8ExpertsLoadToo) {
  TestTensors tensors = ModelTensors();
  for (auto& [name, tensor] : tensors) {
    if (name.find(".ffn.experts.") == std::string::npos) continue;
    const bool is_down = name.find(".w2.") != std::string::npos;
    const int64_t rows = is_down ? 256 : 128;
    const int64_t cols = is_down ? 128 : 256;
    if (name.ends_with(".weight")) {
      tensor = {"F8_E4M3", {rows, cols}, std::string(rows * cols, '\x38')};
    } else {
      tensor = {"F8_E8M0", {rows / 128, cols / 128}, std::string(rows * cols / 16384, '\x7f')};
    }
  }
  BATON_ASSERT_OK_AND_ASSIGN(const Weights weights, LoadChanged(tensors));
  const kernels::PackedMatrix& down = weights.layers[5].moe.routed[7].down;
  EXPECT_EQ(down.rows(), 256);
  EXPECT_EQ(static_cast<float>(down.bf16_panels()[0]), 1.0f);  // e4m3 0x38 times 2^0
}

}  // namespace
}  // namespace baton::engine
