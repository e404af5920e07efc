#include "engine/cuda/weights.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "engine/cuda/expert_loader.h"
#include "engine/model/problems.h"
#include "engine/model/tensor_reader.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

using kernels::Stream;
using kernels::cuda::ExpertBank;
using kernels::cuda::GroupedOutput;
using kernels::cuda::LtMatmul;

// Brings tensors of one prefix to the device. Running out of memory is remembered and leaves what
// could not be had empty, so that loading reads as a list.
class Loader {
 public:
  struct Shared {
    RowLimits limits;
    ExpertShare share;
    Problems& problems;
    Stream stream;
    std::optional<ExpertLoader> experts;
    bool out_of_memory = false;
  };
  Loader(TensorReader reader, Shared& shared) : reader_(std::move(reader)), shared_(shared) {}

  Loader Under(absl::string_view prefix) const { return {reader_.Under(prefix), shared_}; }
  const ModelConfig& config() const { return reader_.config(); }
  const TensorReader& reader() const { return reader_; }
  CUstream_st* stream() const { return shared_.stream.get(); }
  const RowLimits& limits() const { return shared_.limits; }
  const ExpertShare& share() const { return shared_.share; }

  DeviceBuffer Allocate(int64_t bytes) const { return Have(DeviceBuffer::Allocate(bytes)); }
  template <typename T>
  DeviceBuffer Upload(const std::vector<T>& values) const {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    DeviceBuffer buffer = Allocate(bytes);
    if (buffer.size() == 0) return buffer;
    kernels::CopyAsync(buffer.data(), values.data(), bytes, stream());
    shared_.stream.Synchronize();  // `values` is the caller's
    return buffer;
  }
  DeviceBuffer Norm(absl::string_view name) const { return Upload(reader_.Bf16Vector(name)); }
  DeviceBuffer Vector(absl::string_view name) const { return Upload(reader_.Vector(name)); }

  Linear::Options Options(LtMatmul::Output output = LtMatmul::Output::kBf16) const {
    return {.output = output, .max_rows = shared_.limits.pass};
  }
  std::optional<Linear> Bf16(const HostMatrix<BFloat16>& matrix,
                             const Linear::Options& options) const {
    return Kept(Linear::FromBf16(matrix.view(), options));
  }
  std::optional<Linear> Fp8(const QuantizedMatrix& matrix) const { return Fp8(matrix, Options()); }
  std::optional<Linear> Fp8(const QuantizedMatrix& matrix, const Linear::Options& options) const {
    return Kept(Linear::FromFp8(matrix.codes.view(), matrix.scales.view(), options));
  }
  std::optional<GroupedOutput> Grouped(const QuantizedMatrix& matrix) const {
    return Kept(GroupedOutput::FromFp8(matrix.codes.view(), matrix.scales.view(), config().o_groups,
                                       shared_.limits.pass));
  }
  void Experts(int first, const ExpertBank& bank) const {
    if (!shared_.experts) shared_.experts = Kept(ExpertLoader::Make(bank.d, bank.f));
    if (shared_.experts) {
      shared_.experts->Load(reader_, first, bank, stream(), shared_.problems);
    }
  }

 private:
  template <typename T>
  std::optional<T> Kept(std::optional<T> made) const {
    shared_.out_of_memory |= !made.has_value();
    return made;
  }
  DeviceBuffer Have(std::optional<DeviceBuffer> buffer) const {
    shared_.out_of_memory |= !buffer.has_value();
    return buffer ? *std::move(buffer) : DeviceBuffer();
  }

  TensorReader reader_;
  Shared& shared_;
};

template <typename Matrix>
Matrix Stack(Matrix top, const Matrix& bottom) {
  top.Append(bottom);
  return top;
}

CompressorWeights LoadCompressor(const Loader& load, int ratio, int head_dim) {
  return {.ratio = ratio,
          .head_dim = head_dim,
          .kv_gate =
              load.Bf16(Stack(load.reader().Bf16("wkv.weight"), load.reader().Bf16("wgate.weight")),
                        load.Options(LtMatmul::Output::kF32)),
          .ape = load.Vector("ape"),
          .norm = load.Norm("norm.weight")};
}

AttentionWeights LoadAttention(const Loader& load, LayerKind kind) {
  const Loader attn = load.Under("attn.");
  const TensorReader& reader = attn.reader();
  AttentionWeights weights{.norm = load.Norm("attn_norm.weight"),
                           .wq_a = attn.Fp8(reader.Quantized("wq_a")),
                           .q_norm = attn.Norm("q_norm.weight"),
                           .wq_b = attn.Fp8(reader.Quantized("wq_b")),
                           .wkv = attn.Fp8(reader.Quantized("wkv")),
                           .kv_norm = attn.Norm("kv_norm.weight"),
                           .sinks = attn.Vector("attn_sink"),
                           .wo_a = attn.Grouped(reader.Quantized("wo_a")),
                           .wo_b = attn.Fp8(reader.Quantized("wo_b")),
                           .compressor = std::nullopt,
                           .indexer = std::nullopt};
  if (kind == LayerKind::kWindow) return weights;
  const int ratio = kind == LayerKind::kCsa ? ModelConfig::kCsaRatio : ModelConfig::kHcaRatio;
  weights.compressor = LoadCompressor(attn.Under("compressor."), ratio, ModelConfig::kHeadDim);
  if (kind == LayerKind::kHca) return weights;
  const Loader indexer = attn.Under("indexer.");
  weights.indexer = IndexerWeights{
      .wq_b = indexer.Fp8(indexer.reader().Quantized("wq_b")),
      .weights_proj = indexer.Bf16(indexer.reader().Bf16("weights_proj.weight"), load.Options()),
      .compressor = LoadCompressor(indexer.Under("compressor."), ModelConfig::kCsaRatio,
                                   ModelConfig::kIndexHeadDim),
  };
  return weights;
}

void LoadExperts(const Loader& load, MoeWeights& weights) {
  const ModelConfig& config = load.config();
  const int64_t d = config.hidden_size;
  const int64_t f = config.moe_intermediate_size;
  const int experts = load.share().count(config.n_routed_experts);
  weights.first_expert = load.share().first(config.n_routed_experts);
  weights.gate_up = load.Allocate(experts * kernels::cuda::GateUpBytes(d, f));
  weights.down = load.Allocate(experts * kernels::cuda::DownBytes(d, f));
  weights.row_scales = load.Allocate(experts * (2 * f + d) * int64_t{sizeof(float)});
  weights.bank = {.experts = experts,
                  .d = d,
                  .f = f,
                  .gate_up = weights.gate_up.data(),
                  .down = weights.down.data(),
                  .row_scales = weights.row_scales.As<float>()};
  if (weights.row_scales.size() == 0 || weights.gate_up.size() == 0 || weights.down.size() == 0) {
    return;
  }
  load.Experts(weights.first_expert, weights.bank);
}

MoeWeights LoadMoe(const Loader& load, bool by_hash) {
  const Loader shared = load.Under("ffn.shared_experts.");
  MoeWeights weights;
  weights.norm = load.Norm("ffn_norm.weight");
  weights.gate =
      load.Bf16(load.reader().Bf16("ffn.gate.weight"), load.Options(LtMatmul::Output::kF32));
  if (by_hash) {
    weights.hash_experts = load.Upload(load.reader().ExpertIds("ffn.gate.tid2eid"));
  } else {
    weights.bias = load.Vector("ffn.gate.bias");
  }
  LoadExperts(load, weights);
  weights.shared_gate_up =
      load.Fp8(Stack(shared.reader().Quantized("w1"), shared.reader().Quantized("w3")));
  weights.shared_down = load.Fp8(shared.reader().Quantized("w2"));
  return weights;
}

HyperConnectionWeights LoadHyperConnection(const Loader& load, const std::string& name) {
  const HostMatrix<float> fn = load.reader().F32(name + "_fn");
  const DeviceBuffer plain = load.Upload(fn.values);
  DeviceBuffer packed = load.Allocate(kernels::cuda::HcFnBytes(static_cast<int>(fn.rows), fn.cols));
  if (plain.size() > 0 && packed.size() > 0) {
    kernels::cuda::PackHcFn({plain.As<const float>(), fn.rows, fn.cols}, packed.data(),
                            load.stream());
  }
  // Freeing `plain` waits for the device.
  return {.fn = std::move(packed),
          .scale = load.Vector(name + "_scale"),
          .base = load.Vector(name + "_base")};
}

LayerWeights LoadLayer(const Loader& load, LayerKind kind, bool by_hash) {
  return {.hc_attention = LoadHyperConnection(load, "hc_attn"),
          .attention = LoadAttention(load, kind),
          .hc_moe = LoadHyperConnection(load, "hc_ffn"),
          .moe = LoadMoe(load, by_hash)};
}

HeadWeights LoadHead(const Loader& load) {
  return {.hc = LoadHyperConnection(load, "hc_head"), .norm = load.Norm("norm.weight")};
}

MtpWeights LoadMtp(const Loader& load) {
  Linear::Options by_stream = load.Options();
  by_stream.max_rows *= ModelConfig::kStreams;
  return {.embedding_norm = load.Norm("enorm.weight"),
          .e_proj = load.Fp8(load.reader().Quantized("e_proj")),
          .streams_norm = load.Norm("hnorm.weight"),
          .h_proj = load.Fp8(load.reader().Quantized("h_proj"), by_stream),
          .layer = LoadLayer(load, LayerKind::kWindow, /*by_hash=*/false),
          .head = LoadHead(load)};
}

// Says how loading goes, every few seconds.
class Progress {
 public:
  explicit Progress(int layers) : layers_(layers) {}

  void Layer(int done) {
    constexpr std::chrono::seconds kEvery(5);
    const auto now = std::chrono::steady_clock::now();
    if (now < said_ + kEvery) return;
    said_ = now;
    Say(absl::StrCat("weights: ", done, " of ", layers_, " layers"));
  }
  void Done() const { Say("weights are on the device"); }

 private:
  void Say(const std::string& what) const {
    const double gigabytes =
        1e-9 * static_cast<double>(free_ - kernels::MemoryOfCurrentDevice().free);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    spdlog::info("{}: {:.1f} GB in {:.1f} s, {:.1f} GB/s", what, gigabytes, seconds.count(),
                 gigabytes / seconds.count());
  }

  const int layers_;
  const int64_t free_ = kernels::MemoryOfCurrentDevice().free;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point said_ = begin_;
};

// What the kernels ask of a model beyond what config.h promises.
absl::Status CheckKernelsServe(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  Problems problems;
  const auto multiple = [&](const std::string& key, int64_t value, int64_t of) {
    if (value % of != 0) {
      problems.Add(absl::StrCat(key, " is ", value, ", not a multiple of ", of));
    }
  };
  multiple("hidden_size", config.hidden_size, 256);
  multiple("q_lora_rank", config.q_lora_rank, 128);
  multiple("o_lora_rank", config.o_lora_rank, 128);
  multiple("moe_intermediate_size", config.moe_intermediate_size, 128);
  multiple("n_routed_experts", config.n_routed_experts, 8);
  multiple("index_n_heads", config.index_n_heads, 8);
  if (!HasFp4Experts(checkpoint.tensors())) problems.Add("its experts are FP8, not FP4");
  const absl::Status status = problems.ToStatus("the CUDA kernels do not serve this model");
  return status.ok() ? status : absl::FailedPreconditionError(status.message());
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint, const RowLimits& limits,
                                    const ExpertShare& share) {
  BATON_RETURN_IF_ERROR(CheckKernelsServe(checkpoint));
  const ModelConfig& config = checkpoint.config();
  Problems problems;
  Loader::Shared shared{.limits = limits,
                        .share = share,
                        .problems = problems,
                        .stream = {},
                        .experts = std::nullopt};
  Progress progress(config.num_hidden_layers);
  const Loader load(TensorReader(checkpoint, "", problems), shared);
  Weights weights;
  weights.embedding = load.Upload(load.reader().Bf16("embed.weight").values);
  weights.lm_head = load.Bf16(load.reader().Bf16("head.weight"),
                              {.output = LtMatmul::Output::kF32, .max_rows = limits.logits});
  weights.head = LoadHead(load);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    weights.layers.push_back(LoadLayer(load.Under(absl::StrCat("layers.", layer, ".")),
                                       config.layer_kind(layer), config.routes_by_hash(layer)));
    if (shared.out_of_memory) break;
    progress.Layer(layer + 1);
  }
  if (config.has_mtp() && !shared.out_of_memory) weights.mtp = LoadMtp(load.Under("mtp.0."));
  BATON_RETURN_IF_ERROR(problems.ToStatus("invalid weights"));
  if (shared.out_of_memory) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the weights do not fit in the memory of ", kernels::CurrentDevice().name,
                     " (", kernels::CurrentDevice().memory_bytes >> 20, " MiB)"));
  }
  shared.stream.Synchronize();
  progress.Done();
  return weights;
}

}  // namespace baton::engine::cuda
