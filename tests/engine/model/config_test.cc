#include "engine/model/config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json ModelJson() { return Json::parse(ReadFile(kModelDir + "/config.json")); }

// The checkpoint's config with one key changed.
absl::StatusOr<ModelConfig> ParseWith(const std::string& key, const Json& value) {
  Json json = ModelJson();
  json[key] = value;
  return ParseModelConfig(json.dump());
}

auto IsInvalid(const std::string& what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

TEST(ModelConfigTest, ReadsTheCheckpointsConfig) {
  BATON_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(ModelJson().dump()));
  EXPECT_EQ(config.vocab_size, 1024);
  EXPECT_EQ(config.num_hidden_layers, 7);
  EXPECT_EQ(config.index_topk, 512);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_FLOAT_EQ(config.routed_scaling_factor, 1.5f);
  EXPECT_FLOAT_EQ(config.hc_eps, 1e-6f);
  EXPECT_THAT(config.compress_ratios, ElementsAre(0, 0, 4, 128, 4, 128, 4, 0));
  EXPECT_TRUE(config.has_mtp());
}

TEST(ModelConfigTest, LayersFollowTheirRatios) {
  BATON_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(ModelJson().dump()));
  EXPECT_EQ(config.layer_kind(0), LayerKind::kWindow);
  EXPECT_EQ(config.layer_kind(2), LayerKind::kCsa);
  EXPECT_EQ(config.layer_kind(3), LayerKind::kHca);
  EXPECT_EQ(config.layers_of(LayerKind::kWindow), 2);
  EXPECT_EQ(config.layers_of(LayerKind::kCsa), 3);
  EXPECT_EQ(config.layers_of(LayerKind::kHca), 2);
  EXPECT_TRUE(config.routes_by_hash(2));
  EXPECT_FALSE(config.routes_by_hash(3));
}

TEST(ModelConfigTest, EveryRequiredKeyIsNamedWhenMissing) {
  const std::vector<std::string> optional = {"attention_dropout", "torch_dtype", "expert_dtype",
                                             "bos_token_id"};
  const Json complete = ModelJson();
  for (const auto& [key, value] : complete.items()) {
    if (std::count(optional.begin(), optional.end(), key) > 0) continue;
    Json json = complete;
    json.erase(key);
    const auto config = ParseModelConfig(json.dump());
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(key + " is missing"));
  }
}

TEST(ModelConfigTest, OptionalKeysMayBeAbsent) {
  Json json = ModelJson();
  for (const char* key : {"attention_dropout", "torch_dtype", "expert_dtype", "bos_token_id"}) {
    json.erase(key);
  }
  EXPECT_THAT(ParseModelConfig(json.dump()), IsOk());
}

TEST(ModelConfigTest, AllProblemsAreReportedAtOnce) {
  Json json = ModelJson();
  json.erase("vocab_size");
  json["hidden_size"] = "256";
  json["swiglu_limit"] = -1;
  EXPECT_THAT(ParseModelConfig(json.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("vocab_size is missing"),
                             HasSubstr("hidden_size is \"256\", must be an integer"),
                             HasSubstr("swiglu_limit is -1, must be a number"))));
}

TEST(ModelConfigTest, DimensionsThatKernelsHardWireAreNamed) {
  EXPECT_THAT(ParseWith("head_dim", 128), IsInvalid("head_dim is 128, only 512 is supported"));
  EXPECT_THAT(ParseWith("qk_rope_head_dim", 32), IsInvalid("qk_rope_head_dim is 32, only 64"));
  EXPECT_THAT(ParseWith("index_head_dim", 64), IsInvalid("index_head_dim is 64, only 128"));
  EXPECT_THAT(ParseWith("hc_mult", 2), IsInvalid("hc_mult is 2, only 4"));
  EXPECT_THAT(ParseWith("sliding_window", 64), IsInvalid("sliding_window is 64, only 128"));
  EXPECT_THAT(ParseWith("num_key_value_heads", 2), IsInvalid("num_key_value_heads is 2, only 1"));
}

TEST(ModelConfigTest, PropertiesThatTheCodeAssumesAreChecked) {
  EXPECT_THAT(ParseWith("scoring_func", "sigmoid"), IsInvalid("scoring_func is \"sigmoid\""));
  EXPECT_THAT(ParseWith("tie_word_embeddings", true), IsInvalid("tie_word_embeddings is true"));
  EXPECT_THAT(ParseWith("norm_topk_prob", false), IsInvalid("norm_topk_prob is false"));
  EXPECT_THAT(ParseWith("hidden_act", "gelu"), IsInvalid("hidden_act"));
  Json scaling = ModelJson()["rope_scaling"];
  scaling["type"] = "linear";
  EXPECT_THAT(ParseWith("rope_scaling", scaling), IsInvalid("rope_scaling.type is \"linear\""));
  Json quantization = ModelJson()["quantization_config"];
  quantization["weight_block_size"] = {64, 64};
  EXPECT_THAT(ParseWith("quantization_config", quantization),
              IsInvalid("quantization_config.weight_block_size is [64,64]"));
}

TEST(ModelConfigTest, CompressRatiosMustCoverEveryLayerWithAKnownKind) {
  EXPECT_THAT(ParseWith("compress_ratios", {0, 0, 4}), IsInvalid("= 8 entries, is one of 3"));
  EXPECT_THAT(ParseWith("compress_ratios", {0, 0, 4, 64, 4, 128, 4, 0}),
              IsInvalid("compress_ratios[3] is 64, must be 0, 4 or 128"));
  EXPECT_THAT(ParseWith("compress_ratios", {0, 0, 4, 128, 4, 128, 4, 4}),
              IsInvalid("compress_ratios[7] is 4, must be 0 for the MTP block"));
  EXPECT_THAT(ParseWith("compress_ratios", "all"), IsInvalid("compress_ratios"));
}

TEST(ModelConfigTest, DimensionsMustFitTheQuantisationBlocks) {
  EXPECT_THAT(ParseWith("hidden_size", 192), IsInvalid("hidden_size is 192, must be a multiple"));
  EXPECT_THAT(ParseWith("num_attention_heads", 5), IsInvalid("multiple of o_groups"));
}

TEST(ModelConfigTest, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(ParseWith("num_hidden_layers", 0), IsInvalid("num_hidden_layers is 0"));
  EXPECT_THAT(ParseWith("num_hidden_layers", 7.0), IsInvalid("num_hidden_layers is 7.0"));
  EXPECT_THAT(ParseWith("vocab_size", uint64_t{1} << 63), IsInvalid("vocab_size"));
  EXPECT_THAT(ParseWith("num_experts_per_tok", 9), IsInvalid("num_experts_per_tok is 9"));
  EXPECT_THAT(ParseWith("num_hash_layers", 8), IsInvalid("num_hash_layers is 8"));
  EXPECT_THAT(ParseWith("num_nextn_predict_layers", 2), IsInvalid("num_nextn_predict_layers"));
  EXPECT_THAT(ParseWith("eos_token_id", 1024), IsInvalid("eos_token_id is 1024"));
  EXPECT_THAT(ParseWith("index_topk", 4096), IsInvalid("index_topk is 4096"));
}

TEST(ModelConfigTest, LookAlikesOfOtherArchitecturesAreRefusedByTheirKeys) {
  for (const char* key :
       {"dspark_num_stages", "engram_dim", "kv_source_layer_ids", "index_source_layer_ids"}) {
    EXPECT_THAT(ParseWith(key, 1),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("different architecture"), HasSubstr(key))));
  }
  EXPECT_THAT(ParseWith("model_type", "deepseek_v3"), IsInvalid("model_type is \"deepseek_v3\""));
  EXPECT_THAT(ParseWith("architectures", {"DeepseekV3ForCausalLM"}), IsInvalid("architectures"));
}

TEST(ModelConfigTest, WithoutMtpTheRatiosEndWithTheTrunk) {
  Json json = ModelJson();
  json["num_nextn_predict_layers"] = 0;
  EXPECT_THAT(ParseModelConfig(json.dump()), IsInvalid("= 7 entries"));
  json["compress_ratios"] = {0, 0, 4, 128, 4, 128, 4};
  BATON_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(json.dump()));
  EXPECT_FALSE(config.has_mtp());
}

TEST(ModelConfigTest, TextThatIsNotAConfigIsRefused) {
  EXPECT_THAT(ParseModelConfig(""), IsInvalid("not valid JSON"));
  EXPECT_THAT(ParseModelConfig("[1]"), IsInvalid("must be a JSON object"));
  EXPECT_THAT(ParseModelConfig(R"({"a":1,"a":2})"), IsInvalid("\"a\" occurs twice"));
  EXPECT_THAT(ParseModelConfig("{\"a\":\"\xc3\x28\"}"), IsInvalid("UTF-8"));
  EXPECT_THAT(ParseModelConfig(absl::string_view("{}\0{", 4)), IsInvalid("zero byte"));
  EXPECT_THAT(ParseModelConfig(std::string(100000, '[')), Not(IsOk()));
}

}  // namespace
}  // namespace baton::engine
