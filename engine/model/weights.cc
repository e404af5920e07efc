#include "engine/model/weights.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/model/problems.h"
#include "engine/model/tensor_reader.h"
#include "kernels/dequantize.h"

namespace baton::engine {
namespace {

using kernels::PackedMatrix;

PackedMatrix Pack(const HostMatrix<BFloat16>& matrix) {
  return PackedMatrix::FromRows(matrix.view());
}

HostMatrix<BFloat16> Stack(HostMatrix<BFloat16> top, const HostMatrix<BFloat16>& bottom) {
  top.Append(bottom);
  return top;
}

// An FP8 or FP4 linear layer, whichever is stored, as BF16.
HostMatrix<BFloat16> Linear(const TensorReader& reader, const std::string& name) {
  const QuantizedMatrix stored = reader.Quantized(name);
  HostMatrix<BFloat16> matrix{stored.codes.rows, stored.codes.cols * (stored.is_fp4 ? 2 : 1), {}};
  matrix.values.resize(matrix.rows * matrix.cols);
  if (stored.is_fp4) {
    kernels::DequantizeFp4Groups(stored.codes.view(), stored.scales.view(), matrix.view());
  } else {
    kernels::DequantizeFp8Blocks(stored.codes.view(), stored.scales.view(), matrix.view());
  }
  return matrix;
}

CompressorWeights LoadCompressor(const TensorReader& reader, int ratio, int head_dim) {
  return {.ratio = ratio,
          .head_dim = head_dim,
          .kv_gate = Pack(Stack(reader.Bf16("wkv.weight"), reader.Bf16("wgate.weight"))),
          .ape = reader.Vector("ape"),
          .norm = reader.Vector("norm.weight")};
}

// Cuts wo_a into its groups of output rows.
std::vector<PackedMatrix> LoadGroups(const HostMatrix<BFloat16>& wo_a, int groups) {
  std::vector<PackedMatrix> packed;
  const int64_t rows = wo_a.rows / groups;
  for (int group = 0; group < groups; ++group) {
    packed.push_back(PackedMatrix::FromRows(wo_a.view().Rows(group * rows, rows)));
  }
  return packed;
}

AttentionWeights LoadAttention(const TensorReader& reader, LayerKind kind) {
  const TensorReader attn = reader.Under("attn.");
  AttentionWeights weights{
      .norm = reader.Vector("attn_norm.weight"),
      .wq_a_wkv = Pack(Stack(Linear(attn, "wq_a"), Linear(attn, "wkv"))),
      .q_norm = attn.Vector("q_norm.weight"),
      .wq_b = Pack(Linear(attn, "wq_b")),
      .kv_norm = attn.Vector("kv_norm.weight"),
      .sinks = attn.Vector("attn_sink"),
      .wo_a = LoadGroups(Linear(attn, "wo_a"), reader.config().o_groups),
      .wo_b = Pack(Linear(attn, "wo_b")),
  };
  if (kind == LayerKind::kWindow) return weights;
  const int ratio = kind == LayerKind::kCsa ? ModelConfig::kCsaRatio : ModelConfig::kHcaRatio;
  weights.compressor = LoadCompressor(attn.Under("compressor."), ratio, ModelConfig::kHeadDim);
  if (kind == LayerKind::kHca) return weights;
  const TensorReader indexer = attn.Under("indexer.");
  weights.indexer = IndexerWeights{
      .wq_b = Pack(Linear(indexer, "wq_b")),
      .weights_proj = Pack(indexer.Bf16("weights_proj.weight")),
      .compressor = LoadCompressor(indexer.Under("compressor."), ModelConfig::kCsaRatio,
                                   ModelConfig::kIndexHeadDim),
  };
  return weights;
}

kernels::ExpertWeights LoadExpert(const TensorReader& reader) {
  return {.gate_up = Pack(Stack(Linear(reader, "w1"), Linear(reader, "w3"))),
          .down = Pack(Linear(reader, "w2"))};
}

MoeWeights LoadMoe(const TensorReader& reader, bool by_hash, const ExpertShare& share) {
  MoeWeights weights{.norm = reader.Vector("ffn_norm.weight"),
                     .gate = Pack(reader.Bf16("ffn.gate.weight"))};
  if (by_hash) {
    weights.hash_experts = reader.ExpertIds("ffn.gate.tid2eid");
  } else {
    weights.bias = reader.Vector("ffn.gate.bias");
  }
  const int experts = reader.config().n_routed_experts;
  weights.first_expert = share.first(experts);
  const int end = weights.first_expert + share.count(experts);
  for (int expert = weights.first_expert; expert < end; ++expert) {
    weights.routed.push_back(LoadExpert(reader.Under(absl::StrCat("ffn.experts.", expert, "."))));
  }
  weights.shared = LoadExpert(reader.Under("ffn.shared_experts."));
  return weights;
}

HyperConnectionWeights LoadHyperConnection(const TensorReader& reader, const std::string& name) {
  const HostMatrix<float> fn = reader.F32(name + "_fn");
  return {.fn = PackedMatrix::FromRows(fn.view()),
          .scale = reader.Vector(name + "_scale"),
          .base = reader.Vector(name + "_base")};
}

LayerWeights LoadLayer(const TensorReader& reader, LayerKind kind, bool by_hash,
                       const ExpertShare& share) {
  return {.hc_attention = LoadHyperConnection(reader, "hc_attn"),
          .attention = LoadAttention(reader, kind),
          .hc_moe = LoadHyperConnection(reader, "hc_ffn"),
          .moe = LoadMoe(reader, by_hash, share)};
}

HeadWeights LoadHead(const TensorReader& reader) {
  return {.hc = LoadHyperConnection(reader, "hc_head"), .norm = reader.Vector("norm.weight")};
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint, const ExpertShare& share) {
  const ModelConfig& config = checkpoint.config();
  Problems problems;
  const TensorReader reader(checkpoint, "", problems);
  Weights weights;
  weights.embedding = reader.Bf16("embed.weight").values;
  weights.lm_head = Pack(reader.Bf16("head.weight"));
  weights.head = LoadHead(reader);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    weights.layers.push_back(LoadLayer(reader.Under(absl::StrCat("layers.", layer, ".")),
                                       config.layer_kind(layer), config.routes_by_hash(layer),
                                       share));
  }
  if (config.has_mtp()) {
    const TensorReader mtp = reader.Under("mtp.0.");
    weights.mtp = MtpWeights{
        .embedding_norm = mtp.Vector("enorm.weight"),
        .e_proj = Pack(Linear(mtp, "e_proj")),
        .streams_norm = mtp.Vector("hnorm.weight"),
        .h_proj = Pack(Linear(mtp, "h_proj")),
        .layer = LoadLayer(mtp, LayerKind::kWindow, /*by_hash=*/false, share),
        .head = LoadHead(mtp),
    };
  }
  BATON_RETURN_IF_ERROR(problems.ToStatus("invalid weights"));
  return weights;
}

}  // namespace baton::engine
