#include "engine/model/schema.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/problems.h"

namespace baton::engine {
namespace {

constexpr int64_t kFp8Block = 128;  // rows and columns that share one scale
constexpr int64_t kFp4Block = 32;   // columns that share one scale

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Adds tensors under a common prefix.
class SpecBuilder {
 public:
  SpecBuilder(std::map<std::string, TensorSpec>& specs, std::string prefix)
      : specs_(specs), prefix_(std::move(prefix)) {}

  void Add(absl::string_view name, TensorType type, std::vector<int64_t> shape) {
    specs_[absl::StrCat(prefix_, name)] = {type, std::move(shape)};
  }

  void Bf16(absl::string_view name, std::vector<int64_t> shape) {
    Add(name, TensorType::kBf16, std::move(shape));
  }

  void F32(absl::string_view name, std::vector<int64_t> shape) {
    Add(name, TensorType::kF32, std::move(shape));
  }

  void Fp8Linear(absl::string_view name, int64_t out, int64_t in) {
    Add(absl::StrCat(name, ".weight"), TensorType::kF8E4M3, {out, in});
    Add(absl::StrCat(name, ".scale"), TensorType::kF8E8M0,
        {CeilDiv(out, kFp8Block), CeilDiv(in, kFp8Block)});
  }

  void Fp4Linear(absl::string_view name, int64_t out, int64_t in) {
    Add(absl::StrCat(name, ".weight"), TensorType::kI8, {out, in / 2});
    Add(absl::StrCat(name, ".scale"), TensorType::kF8E8M0, {out, in / kFp4Block});
  }

 private:
  std::map<std::string, TensorSpec>& specs_;
  std::string prefix_;
};

void AddCompressor(SpecBuilder& add, const ModelConfig& config, const std::string& prefix,
                   int64_t ratio, int64_t head_dim) {
  // Overlapping groups keep two sets of channels a token, one for each group that it belongs to.
  const int64_t width = ratio == ModelConfig::kCsaRatio ? 2 * head_dim : head_dim;
  add.F32(prefix + "ape", {ratio, width});
  add.Bf16(prefix + "wkv.weight", {width, config.hidden_size});
  add.Bf16(prefix + "wgate.weight", {width, config.hidden_size});
  add.Bf16(prefix + "norm.weight", {head_dim});
}

void AddAttention(SpecBuilder& add, const ModelConfig& config, LayerKind kind) {
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.num_attention_heads;
  const int64_t values = heads * config.head_dim;
  const int64_t outputs = int64_t{config.o_groups} * config.o_lora_rank;
  add.Bf16("attn_norm.weight", {hidden});
  add.Fp8Linear("attn.wq_a", config.q_lora_rank, hidden);
  add.Bf16("attn.q_norm.weight", {config.q_lora_rank});
  add.Fp8Linear("attn.wq_b", values, config.q_lora_rank);
  add.Fp8Linear("attn.wkv", config.head_dim, hidden);
  add.Bf16("attn.kv_norm.weight", {config.head_dim});
  add.F32("attn.attn_sink", {heads});
  add.Fp8Linear("attn.wo_a", outputs, values / config.o_groups);
  add.Fp8Linear("attn.wo_b", hidden, outputs);
  if (kind == LayerKind::kWindow) return;
  const bool is_csa = kind == LayerKind::kCsa;
  AddCompressor(add, config, "attn.compressor.",
                is_csa ? ModelConfig::kCsaRatio : ModelConfig::kHcaRatio, config.head_dim);
  if (!is_csa) return;
  add.Fp8Linear("attn.indexer.wq_b", int64_t{config.index_n_heads} * config.index_head_dim,
                config.q_lora_rank);
  add.Bf16("attn.indexer.weights_proj.weight", {config.index_n_heads, hidden});
  AddCompressor(add, config, "attn.indexer.compressor.", ModelConfig::kCsaRatio,
                config.index_head_dim);
}

void AddMoe(SpecBuilder& add, const ModelConfig& config, bool by_hash, bool fp4_experts) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.moe_intermediate_size;
  add.Bf16("ffn_norm.weight", {hidden});
  add.Bf16("ffn.gate.weight", {config.n_routed_experts, hidden});
  if (by_hash) {
    add.Add("ffn.gate.tid2eid", TensorType::kI64, {config.vocab_size, config.num_experts_per_tok});
  } else {
    add.F32("ffn.gate.bias", {config.n_routed_experts});
  }
  add.Fp8Linear("ffn.shared_experts.w1", inner, hidden);
  add.Fp8Linear("ffn.shared_experts.w3", inner, hidden);
  add.Fp8Linear("ffn.shared_experts.w2", hidden, inner);
  for (int expert = 0; expert < config.n_routed_experts; ++expert) {
    const auto linear = [&](absl::string_view name, int64_t out, int64_t in) {
      const std::string full = absl::StrCat("ffn.experts.", expert, ".", name);
      fp4_experts ? add.Fp4Linear(full, out, in) : add.Fp8Linear(full, out, in);
    };
    linear("w1", inner, hidden);
    linear("w3", inner, hidden);
    linear("w2", hidden, inner);
  }
}

void AddHyperConnections(SpecBuilder& add, const ModelConfig& config) {
  const int64_t streams = config.hc_mult;
  const int64_t mixes = streams * (2 + streams);  // pre, post, and the stream mixing matrix
  for (const std::string name : {"hc_attn_", "hc_ffn_"}) {
    add.F32(name + "fn", {mixes, streams * config.hidden_size});
    add.F32(name + "base", {mixes});
    add.F32(name + "scale", {3});
  }
}

void AddHead(SpecBuilder& add, const ModelConfig& config) {
  add.Bf16("norm.weight", {config.hidden_size});
  add.F32("hc_head_fn", {config.hc_mult, int64_t{config.hc_mult} * config.hidden_size});
  add.F32("hc_head_base", {config.hc_mult});
  add.F32("hc_head_scale", {1});
}

}  // namespace

bool HasFp4Experts(const TensorMap& tensors) {
  const auto it = tensors.find("layers.0.ffn.experts.0.w1.weight");
  return it == tensors.end() || it->second.type == TensorType::kI8;
}

std::map<std::string, TensorSpec> ExpectedTensors(const ModelConfig& config, bool fp4_experts) {
  std::map<std::string, TensorSpec> specs;
  SpecBuilder global(specs, "");
  global.Bf16("embed.weight", {config.vocab_size, config.hidden_size});
  global.Bf16("head.weight", {config.vocab_size, config.hidden_size});
  AddHead(global, config);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    SpecBuilder add(specs, absl::StrCat("layers.", layer, "."));
    AddAttention(add, config, config.layer_kind(layer));
    AddMoe(add, config, config.routes_by_hash(layer), fp4_experts);
    AddHyperConnections(add, config);
  }
  if (config.has_mtp()) {
    SpecBuilder add(specs, "mtp.0.");
    AddAttention(add, config, LayerKind::kWindow);
    AddMoe(add, config, /*by_hash=*/false, fp4_experts);
    AddHyperConnections(add, config);
    AddHead(add, config);
    add.Fp8Linear("e_proj", config.hidden_size, config.hidden_size);
    add.Fp8Linear("h_proj", config.hidden_size, config.hidden_size);
    add.Bf16("enorm.weight", {config.hidden_size});
    add.Bf16("hnorm.weight", {config.hidden_size});
  }
  return specs;
}

absl::Status CheckTensors(const ModelConfig& config, const TensorMap& tensors) {
  Problems problems;
  const auto expected = ExpectedTensors(config, HasFp4Experts(tensors));
  for (const auto& [name, spec] : expected) {
    const auto it = tensors.find(name);
    const std::string wanted = DescribeTensor(spec.type, spec.shape);
    if (it == tensors.end()) {
      problems.Add(absl::StrCat(name, " is missing (", wanted, ")"));
    } else if (it->second.type != spec.type || it->second.shape != spec.shape) {
      problems.Add(absl::StrCat(name, " is ", DescribeTensor(it->second.type, it->second.shape),
                                ", must be ", wanted));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!expected.contains(name)) problems.Add(absl::StrCat(name, " is not part of this model"));
  }
  return problems.ToStatus("tensors do not fit config.json");
}

}  // namespace baton::engine
