#include "engine/model/weights.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/model/problems.h"
#include "kernels/dequantize.h"

namespace baton::engine {
namespace {

using kernels::MatrixView;
using kernels::PackedMatrix;

// A BF16 matrix on its way from the file to its packed form.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<BFloat16> values;

  MatrixView<BFloat16> view() { return {values.data(), rows, cols}; }
  MatrixView<const BFloat16> view() const { return {values.data(), rows, cols}; }
};

template <typename T>
std::vector<T> Copy(const TensorView& tensor) {
  BATON_CHECK(tensor.bytes.size() % sizeof(T) == 0);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

Matrix Stack(Matrix top, const Matrix& bottom) {
  BATON_CHECK(top.cols == bottom.cols);
  top.values.insert(top.values.end(), bottom.values.begin(), bottom.values.end());
  top.rows += bottom.rows;
  return top;
}

PackedMatrix Pack(const Matrix& matrix) { return PackedMatrix::FromRows(matrix.view()); }

// Reads the tensors under one prefix. The checkpoint's schema has been checked, so only values can
// be wrong; complaints are gathered.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, std::string prefix, Problems& problems)
      : checkpoint_(checkpoint), prefix_(std::move(prefix)), problems_(problems) {}

  Reader Under(absl::string_view prefix) const {
    return Reader(checkpoint_, absl::StrCat(prefix_, prefix), problems_);
  }
  const ModelConfig& config() const { return checkpoint_.config(); }

  // A BF16 or F32 tensor as FP32.
  std::vector<float> Vector(absl::string_view name) const {
    const TensorView& tensor = Tensor(name);
    std::vector<float> values;
    if (tensor.type == TensorType::kF32) {
      values = Copy<float>(tensor);
    } else {
      for (const BFloat16 value : Copy<BFloat16>(tensor)) {
        values.push_back(static_cast<float>(value));
      }
    }
    for (const float value : values) {
      if (!std::isfinite(value)) return NotFinite<float>(name);
    }
    return values;
  }

  Matrix Bf16(absl::string_view name) const {
    const TensorView& tensor = Tensor(name);
    return Checked(name, {tensor.shape[0], tensor.shape[1], Copy<BFloat16>(tensor)});
  }

  PackedMatrix F32(absl::string_view name) const {
    const TensorView& tensor = Tensor(name);
    const std::vector<float> values = Vector(name);
    if (values.empty()) return {};
    return PackedMatrix::FromRows(
        MatrixView<const float>(values.data(), tensor.shape[0], tensor.shape[1]));
  }

  // An FP8 or FP4 linear layer, whichever is stored, as BF16.
  Matrix Linear(const std::string& name) const {
    const TensorView& weight = Tensor(name + ".weight");
    const TensorView& scale = Tensor(name + ".scale");
    const bool is_fp4 = weight.type == TensorType::kI8;
    Matrix matrix{weight.shape[0], weight.shape[1] * (is_fp4 ? 2 : 1), {}};
    matrix.values.resize(matrix.rows * matrix.cols);
    const auto codes = [](const TensorView& tensor) {
      return MatrixView<const uint8_t>(reinterpret_cast<const uint8_t*>(tensor.bytes.data()),
                                       tensor.shape[0], tensor.shape[1]);
    };
    if (is_fp4) {
      kernels::DequantizeFp4Groups(codes(weight), codes(scale), matrix.view());
    } else {
      kernels::DequantizeFp8Blocks(codes(weight), codes(scale), matrix.view());
    }
    return Checked(name, std::move(matrix));
  }

  std::vector<int32_t> ExpertIds(absl::string_view name) const {
    std::vector<int32_t> ids;
    for (const int64_t id : Copy<int64_t>(Tensor(name))) {
      if (id < 0 || id >= config().n_routed_experts) {
        problems_.Add(absl::StrCat(prefix_, name, " names expert ", id, ", there are ",
                                   config().n_routed_experts));
        return {};
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

 private:
  const TensorView& Tensor(absl::string_view name) const {
    return checkpoint_.tensor(absl::StrCat(prefix_, name));
  }

  template <typename T>
  std::vector<T> NotFinite(absl::string_view name) const {
    problems_.Add(absl::StrCat(prefix_, name, " has a value that is not finite"));
    return {};
  }

  Matrix Checked(absl::string_view name, Matrix matrix) const {
    constexpr uint16_t kExponent = 0x7f80;
    for (const BFloat16 value : matrix.values) {
      if ((value.bits & kExponent) != kExponent) continue;
      NotFinite<BFloat16>(name);
      break;
    }
    return matrix;
  }

  const Checkpoint& checkpoint_;
  std::string prefix_;
  Problems& problems_;
};

CompressorWeights LoadCompressor(const Reader& reader, int ratio, int head_dim) {
  return {.ratio = ratio,
          .head_dim = head_dim,
          .kv_gate = Pack(Stack(reader.Bf16("wkv.weight"), reader.Bf16("wgate.weight"))),
          .ape = reader.Vector("ape"),
          .norm = reader.Vector("norm.weight")};
}

// Cuts wo_a into its groups of output rows.
std::vector<PackedMatrix> LoadGroups(const Matrix& wo_a, int groups) {
  std::vector<PackedMatrix> packed;
  const int64_t rows = wo_a.rows / groups;
  for (int group = 0; group < groups; ++group) {
    packed.push_back(PackedMatrix::FromRows(wo_a.view().Rows(group * rows, rows)));
  }
  return packed;
}

AttentionWeights LoadAttention(const Reader& reader, LayerKind kind) {
  const Reader attn = reader.Under("attn.");
  AttentionWeights weights{
      .norm = reader.Vector("attn_norm.weight"),
      .wq_a_wkv = Pack(Stack(attn.Linear("wq_a"), attn.Linear("wkv"))),
      .q_norm = attn.Vector("q_norm.weight"),
      .wq_b = Pack(attn.Linear("wq_b")),
      .kv_norm = attn.Vector("kv_norm.weight"),
      .sinks = attn.Vector("attn_sink"),
      .wo_a = LoadGroups(attn.Linear("wo_a"), reader.config().o_groups),
      .wo_b = Pack(attn.Linear("wo_b")),
  };
  if (kind == LayerKind::kWindow) return weights;
  const int ratio = kind == LayerKind::kCsa ? ModelConfig::kCsaRatio : ModelConfig::kHcaRatio;
  weights.compressor = LoadCompressor(attn.Under("compressor."), ratio, ModelConfig::kHeadDim);
  if (kind == LayerKind::kHca) return weights;
  const Reader indexer = attn.Under("indexer.");
  weights.indexer = IndexerWeights{
      .wq_b = Pack(indexer.Linear("wq_b")),
      .weights_proj = Pack(indexer.Bf16("weights_proj.weight")),
      .compressor = LoadCompressor(indexer.Under("compressor."), ModelConfig::kCsaRatio,
                                   ModelConfig::kIndexHeadDim),
  };
  return weights;
}

kernels::ExpertWeights LoadExpert(const Reader& reader) {
  return {.gate_up = Pack(Stack(reader.Linear("w1"), reader.Linear("w3"))),
          .down = Pack(reader.Linear("w2"))};
}

MoeWeights LoadMoe(const Reader& reader, bool by_hash) {
  MoeWeights weights{.norm = reader.Vector("ffn_norm.weight"),
                     .gate = Pack(reader.Bf16("ffn.gate.weight"))};
  if (by_hash) {
    weights.hash_experts = reader.ExpertIds("ffn.gate.tid2eid");
  } else {
    weights.bias = reader.Vector("ffn.gate.bias");
  }
  for (int expert = 0; expert < reader.config().n_routed_experts; ++expert) {
    weights.routed.push_back(LoadExpert(reader.Under(absl::StrCat("ffn.experts.", expert, "."))));
  }
  weights.shared = LoadExpert(reader.Under("ffn.shared_experts."));
  return weights;
}

HyperConnectionWeights LoadHyperConnection(const Reader& reader, const std::string& name) {
  return {.fn = reader.F32(name + "_fn"),
          .scale = reader.Vector(name + "_scale"),
          .base = reader.Vector(name + "_base")};
}

LayerWeights LoadLayer(const Reader& reader, LayerKind kind, bool by_hash) {
  return {.hc_attention = LoadHyperConnection(reader, "hc_attn"),
          .attention = LoadAttention(reader, kind),
          .hc_moe = LoadHyperConnection(reader, "hc_ffn"),
          .moe = LoadMoe(reader, by_hash)};
}

HeadWeights LoadHead(const Reader& reader) {
  return {.hc = LoadHyperConnection(reader, "hc_head"), .norm = reader.Vector("norm.weight")};
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  Problems problems;
  const Reader reader(checkpoint, "", problems);
  Weights weights;
  weights.embedding = reader.Bf16("embed.weight").values;
  weights.lm_head = Pack(reader.Bf16("head.weight"));
  weights.head = LoadHead(reader);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    weights.layers.push_back(LoadLayer(reader.Under(absl::StrCat("layers.", layer, ".")),
                                       config.layer_kind(layer), config.routes_by_hash(layer)));
  }
  if (config.has_mtp()) {
    const Reader mtp = reader.Under("mtp.0.");
    weights.mtp = MtpWeights{
        .embedding_norm = mtp.Vector("enorm.weight"),
        .e_proj = Pack(mtp.Linear("e_proj")),
        .streams_norm = mtp.Vector("hnorm.weight"),
        .h_proj = Pack(mtp.Linear("h_proj")),
        .layer = LoadLayer(mtp, LayerKind::kWindow, /*by_hash=*/false),
        .head = LoadHead(mtp),
    };
  }
  BATON_RETURN_IF_ERROR(problems.ToStatus("invalid weights"));
  return weights;
}

}  // namespace baton::engine
