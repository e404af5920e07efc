#include "engine/model/config.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/model/json.h"
#include "engine/model/problems.h"

namespace baton::engine {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 16;
constexpr int kFp8Block = 128;

// Keys of models that share V4's name and most of its keys but not its architecture.
bool IsForeignKey(absl::string_view key) {
  return absl::StartsWith(key, "dspark_") || absl::StartsWith(key, "engram_") ||
         key == "kv_source_layer_ids" || key == "index_source_layer_ids";
}

// Reads keys of one object and collects complaints instead of stopping at the first.
class KeyReader {
 public:
  KeyReader(const Json& object, std::string prefix, Problems& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  int Int(const char* key, int64_t low, int64_t high) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || *value < low || *value > high) {
      Complain(key, absl::StrCat("is ", Show(*value), ", must be an integer in [", low, ", ", high,
                                 "]"));
      return 0;
    }
    return value->get<int>();
  }

  // An integer that the kernels hard-wire.
  int Fixed(const char* key, int expected) {
    Expect(key, expected);
    return expected;
  }

  double Real(const char* key, double low, double high) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= low && number <= high)) {
      Complain(key,
               absl::StrCat("is ", Show(*value), ", must be a number in [", low, ", ", high, "]"));
      return 0;
    }
    return number;
  }

  void Expect(const char* key, const Json& expected) {
    const Json* value = Find(key);
    if (value != nullptr && *value != expected) {
      Complain(key, absl::StrCat("is ", Show(*value), ", only ", Show(expected), " is supported"));
    }
  }

  void ExpectIfPresent(const char* key, const Json& expected) {
    if (object_.contains(key)) Expect(key, expected);
  }

  const Json* Find(const char* key) {
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    Complain(key, "is missing");
    return nullptr;
  }

  const Json* Object(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr || value->is_object()) return value;
    Complain(key, absl::StrCat("is ", Show(*value), ", must be an object"));
    return nullptr;
  }

  void Complain(absl::string_view key, absl::string_view what) {
    problems_.Add(absl::StrCat(prefix_, key, " ", what));
  }

  static std::string Show(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 80) text = absl::StrCat(text.substr(0, 77), "...");
    return text;
  }

 private:
  const Json& object_;
  std::string prefix_;
  Problems& problems_;
};

void ReadCompressRatios(KeyReader& keys, ModelConfig& config) {
  const Json* value = keys.Find("compress_ratios");
  if (value == nullptr) return;
  const size_t expected = config.num_hidden_layers + config.num_nextn_predict_layers;
  if (!value->is_array() || value->size() != expected) {
    keys.Complain(
        "compress_ratios",
        absl::StrCat(
            "must be an array of num_hidden_layers + num_nextn_predict_layers = ", expected,
            " entries, is ",
            value->is_array() ? absl::StrCat("one of ", value->size()) : KeyReader::Show(*value)));
    return;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& ratio = (*value)[i];
    const bool is_mtp = i >= static_cast<size_t>(config.num_hidden_layers);
    if (ratio != 0 && (is_mtp || (ratio != 4 && ratio != 128))) {
      keys.Complain(
          absl::StrCat("compress_ratios[", i, "]"),
          absl::StrCat("is ", KeyReader::Show(ratio),
                       is_mtp ? ", must be 0 for the MTP block" : ", must be 0, 4 or 128"));
      continue;
    }
    config.compress_ratios.push_back(ratio.get<int>());
  }
}

void ReadShape(KeyReader& keys, ModelConfig& config) {
  config.vocab_size = keys.Int("vocab_size", 1, 1 << 24);
  config.hidden_size = keys.Int("hidden_size", kFp8Block, 1 << 16);
  config.num_hidden_layers = keys.Int("num_hidden_layers", 1, 1024);
  config.num_nextn_predict_layers = keys.Int("num_nextn_predict_layers", 0, 1);
  config.num_hash_layers = keys.Int("num_hash_layers", 0, config.num_hidden_layers);
  config.max_position_embeddings = keys.Int("max_position_embeddings", 1, 1 << 24);
  config.eos_token_id = keys.Int("eos_token_id", 0, config.vocab_size - 1);
}

void ReadAttention(KeyReader& keys, Problems& problems, ModelConfig& config) {
  config.num_attention_heads = keys.Int("num_attention_heads", 1, 128);
  keys.Expect("num_key_value_heads", 1);
  config.head_dim = keys.Fixed("head_dim", ModelConfig::kHeadDim);
  config.qk_rope_head_dim = keys.Fixed("qk_rope_head_dim", ModelConfig::kRopeDim);
  config.q_lora_rank = keys.Int("q_lora_rank", kFp8Block, 1 << 16);
  config.o_groups = keys.Int("o_groups", 1, 128);
  config.o_lora_rank = keys.Int("o_lora_rank", 1, 1 << 16);
  config.sliding_window = keys.Fixed("sliding_window", ModelConfig::kWindow);
  config.rope_theta = keys.Real("rope_theta", 1, 1e12);
  config.compress_rope_theta = keys.Real("compress_rope_theta", 1, 1e12);
  ReadCompressRatios(keys, config);
  if (const Json* object = keys.Object("rope_scaling")) {
    KeyReader scaling(*object, "rope_scaling.", problems);
    scaling.Expect(object->contains("rope_type") ? "rope_type" : "type", "yarn");
    config.rope_scaling.factor = scaling.Real("factor", 1, 1e6);
    config.rope_scaling.original_max_position_embeddings =
        scaling.Int("original_max_position_embeddings", 1, 1 << 24);
    config.rope_scaling.beta_fast = scaling.Real("beta_fast", 1e-3, 1e6);
    config.rope_scaling.beta_slow = scaling.Real("beta_slow", 1e-3, 1e6);
  }
  keys.Expect("attention_bias", false);
  keys.ExpectIfPresent("attention_dropout", 0);
  config.index_n_heads = keys.Int("index_n_heads", 1, 128);
  config.index_head_dim = keys.Fixed("index_head_dim", ModelConfig::kIndexHeadDim);
  config.index_topk = keys.Int("index_topk", 1, 2048);
}

void ReadMoe(KeyReader& keys, ModelConfig& config) {
  config.n_routed_experts = keys.Int("n_routed_experts", 1, 1 << 12);
  config.num_experts_per_tok = keys.Int("num_experts_per_tok", 1, config.n_routed_experts);
  config.n_shared_experts = keys.Fixed("n_shared_experts", 1);
  config.moe_intermediate_size = keys.Int("moe_intermediate_size", kFp8Block, 1 << 16);
  keys.Expect("scoring_func", "sqrtsoftplus");
  keys.Expect("topk_method", "noaux_tc");
  keys.Expect("norm_topk_prob", true);
  config.routed_scaling_factor = static_cast<float>(keys.Real("routed_scaling_factor", 0, 1e3));
  config.swiglu_limit = static_cast<float>(keys.Real("swiglu_limit", 1e-3, 1e6));
  keys.Expect("hidden_act", "silu");
}

void ReadRest(KeyReader& keys, Problems& problems, ModelConfig& config) {
  config.hc_mult = keys.Fixed("hc_mult", ModelConfig::kStreams);
  config.hc_sinkhorn_iters = keys.Int("hc_sinkhorn_iters", 1, 1000);
  config.hc_eps = static_cast<float>(keys.Real("hc_eps", 0, 1e-2));
  config.rms_norm_eps = static_cast<float>(keys.Real("rms_norm_eps", 0, 1e-2));
  keys.Expect("tie_word_embeddings", false);
  keys.ExpectIfPresent("torch_dtype", "bfloat16");
  keys.ExpectIfPresent("dtype", "bfloat16");
  if (const Json* object = keys.Object("quantization_config")) {
    KeyReader quantization(*object, "quantization_config.", problems);
    quantization.Expect("quant_method", "fp8");
    quantization.ExpectIfPresent("fmt", "e4m3");
    quantization.Expect("scale_fmt", "ue8m0");
    quantization.Expect("weight_block_size", Json::array({kFp8Block, kFp8Block}));
    quantization.ExpectIfPresent("activation_scheme", "dynamic");
  }
}

// Relations between keys; only meaningful once every key by itself is sound.
void CheckRelations(const ModelConfig& config, Problems& problems) {
  const auto must_divide = [&](const char* name, int value, int divisor) {
    if (value % divisor != 0) {
      problems.Add(absl::StrCat(name, " is ", value, ", must be a multiple of ", divisor));
    }
  };
  // Inputs of FP8 products are quantised in groups of 128 channels.
  must_divide("hidden_size", config.hidden_size, kFp8Block);
  must_divide("q_lora_rank", config.q_lora_rank, kFp8Block);
  must_divide("moe_intermediate_size", config.moe_intermediate_size, kFp8Block);
  must_divide("o_groups * o_lora_rank", config.o_groups * config.o_lora_rank, kFp8Block);
  if (config.num_attention_heads % config.o_groups != 0) {
    problems.Add(absl::StrCat("num_attention_heads is ", config.num_attention_heads,
                              ", must be a multiple of o_groups ", config.o_groups));
  }
}

absl::Status CheckArchitecture(const Json& document) {
  std::vector<std::string> foreign;
  for (const auto& [key, value] : document.items()) {
    if (IsForeignKey(key)) foreign.push_back(key);
  }
  if (!foreign.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a different architecture from DeepSeek-V4: it has the keys ",
                     absl::StrJoin(foreign, ", ")));
  }
  Problems problems;
  KeyReader keys(document, "", problems);
  keys.Expect("model_type", "deepseek_v4");
  keys.Expect("architectures", Json::array({"DeepseekV4ForCausalLM"}));
  return problems.ToStatus("not a DeepSeek-V4 model");
}

}  // namespace

LayerKind ModelConfig::layer_kind(int layer) const {
  BATON_CHECK(layer >= 0 && layer < num_hidden_layers) << layer;
  switch (compress_ratios[layer]) {
    case kCsaRatio:
      return LayerKind::kCsa;
    case kHcaRatio:
      return LayerKind::kHca;
    default:
      return LayerKind::kWindow;
  }
}

int ModelConfig::layers_of(LayerKind kind) const {
  int count = 0;
  for (int layer = 0; layer < num_hidden_layers; ++layer) count += layer_kind(layer) == kind;
  return count;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json) {
  BATON_ASSIGN_OR_RETURN(const Json document, ParseUntrustedJson(json, kMaxJsonDepth));
  if (!document.is_object()) return absl::InvalidArgumentError("must be a JSON object");
  BATON_RETURN_IF_ERROR(CheckArchitecture(document));

  Problems problems;
  ModelConfig config;
  KeyReader keys(document, "", problems);
  ReadShape(keys, config);
  ReadAttention(keys, problems, config);
  ReadMoe(keys, config);
  ReadRest(keys, problems, config);
  if (problems.empty()) CheckRelations(config, problems);
  BATON_RETURN_IF_ERROR(problems.ToStatus("unsupported model"));
  return config;
}

}  // namespace baton::engine
