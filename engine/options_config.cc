#include "engine/options_config.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "engine/model/backend.h"

namespace baton::engine {
namespace {

using kernels::EntryFormat;

absl::Status NotOneOf(const std::string& flag, const std::string& value,
                      const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is \"", value, "\"; expected ", expected));
}

absl::StatusOr<EntryFormat> ParseKvFormat(const std::string& name) {
  if (name == "bf16") return EntryFormat::kBf16;
  if (name == "fp8") return EntryFormat::kFp8Packed;
  return NotOneOf("kv-cache-dtype", name, "bf16 or fp8");
}

absl::StatusOr<EntryFormat> ParseIndexFormat(const std::string& name) {
  if (name == "bf16") return EntryFormat::kBf16;
  if (name == "fp8") return EntryFormat::kFp8Index;
  if (name == "fp4") return EntryFormat::kFp4Index;
  return NotOneOf("index-cache-dtype", name, "bf16, fp8 or fp4");
}

absl::StatusOr<Numerics> ParseNumerics(const std::string& name) {
  if (name == "reference") return Numerics::kReference;
  if (name == "exact") return Numerics::kExact;
  return NotOneOf("numerics", name, "reference or exact");
}

}  // namespace

void BindOptions(OptionsConfig& config, ConfigParser& parser) {
  parser.Group("Model");
  parser.Add("model-dir", &config.model_dir, "directory of the checkpoint").Required();
  parser
      .Add(
          "load-format", &config.load_format,
          "safetensors: the directory's weights; dummy: random ones, of which only the speed means "
          "something")
      .OneOf({"safetensors", "dummy"});
  parser
      .Add("num-layers", &config.num_layers,
           "with dummy weights: the first so many layers and the MTP block; 0: all")
      .Range(0, 1024);
  const bool has_cuda = BackendNames().size() > 1;
  ConfigOption& device =
      parser.Add("device", &config.device,
                 has_cuda ? "what computes" : "what computes: cpu; cuda in builds with CUDA");
  if (has_cuda) {
    device.OneOf(BackendNames());
  } else {
    device.Format("cpu: this build has no CUDA",
                  [](const std::string& name) { return name == "cpu"; });
  }
  parser
      .Add("numerics", &config.numerics,
           "reference: values on the grids the model was trained with; exact: as computed")
      .OneOf({"reference", "exact"});
  parser.Add(
      "enable-deterministic-inference", &config.enable_deterministic_inference,
      "a request's tokens depend in no bit on what else is computed, for which steps of few "
      "sequences take longer on a GPU, of compute capability 9.0 only; on a CPU they never do");
  parser.Add("index-topk", &config.index_topk, "entries the indexer selects; 0: as the checkpoint")
      .Range(0, 1 << 16);
  parser
      .Add("draft-tokens", &config.draft_tokens,
           "tokens drafted by the MTP block per decode step; 0: off")
      .Range(0, 7);
  parser.Add("threads", &config.threads, "compute threads; 0: all cores").Range(0, 1024);

  parser.Group("Several devices");
  parser
      .Add("expert-parallel-size", &config.expert_parallel_size,
           "ranks, one process and one device each, that share the model's experts; 1: alone")
      .Range(1, 64);
  parser.Add("expert-parallel-rank", &config.expert_parallel_rank, "which of them this is")
      .Range(0, 63);
  parser
      .Add("expert-parallel-address", &config.expert_parallel_address,
           "host:port at which rank 0 waits for the others; the same for all ranks")
      .Format("host:port or nothing",
              [](const std::string& text) { return text.empty() || IsHostPort(text); });
  parser.Add("expert-parallel-stall", &config.expert_parallel_stall,
             "a rank that keeps the others waiting in a step for so long ends the group");
  parser.Add("expert-parallel-start", &config.expert_parallel_start,
             "the same before the first step, while weights are loaded");

  parser.Group("Cache");
  parser.Add("kv-cache-dtype", &config.kv_cache_dtype, "storage of compressed KV entries")
      .OneOf({"bf16", "fp8"});
  parser.Add("index-cache-dtype", &config.index_cache_dtype, "storage of index keys")
      .OneOf({"bf16", "fp8", "fp4"});
  parser.Add("page-tokens", &config.page_tokens, "tokens a page covers")
      .Range(128, 4096)
      .MultipleOf(128)
      .Unit("tokens");
  parser
      .Add("pages", &config.pages,
           "pages of the cache; 0: as many as memory-fraction leaves room for, on a CPU 512")
      .Range(0, 1 << 28);
  parser
      .Add("memory-fraction", &config.memory_fraction,
           "share of a GPU's memory that this worker takes for weights, intermediates and cache; "
           "what CUDA itself and captured steps need is beside it")
      .Range(0.1, 1);
  parser.Add("slots", &config.slots, "sequences that can be live at once").Range(1, 4096);
  parser
      .Add("prefix-cache", &config.prefix_cache,
           "share of pages that may keep earlier prompts and answers while no sequence needs them; "
           "0: off")
      .Range(0, 100)
      .Unit("percent");
  parser
      .Add("prefix-cache-states", &config.prefix_cache_states,
           "places in them from which a prompt can go on; each takes about a slot's memory")
      .Range(1, 1 << 20);

  parser.Group("Steps");
  parser
      .Add("step-tokens", &config.step_tokens,
           "prompt tokens computed per step, all sequences; a GPU's intermediates have room for "
           "them, up to 4096")
      .Range(1, 1 << 20)
      .Unit("tokens");
  parser
      .Add("chunk-tokens", &config.chunk_tokens, "prompt tokens computed per step of one sequence")
      .Range(1, 1 << 20)
      .Unit("tokens");
}

absl::StatusOr<EngineOptions> MakeEngineOptions(const OptionsConfig& config) {
  EngineOptions options;
  options.device = config.device;
  options.model_dir = config.model_dir;
  options.dummy_weights = config.load_format == "dummy";
  options.num_layers = config.num_layers;
  options.cache.page_tokens = config.page_tokens;
  options.cache.pages = config.pages;
  if (config.pages == 0 && config.device == "cpu") options.cache.pages = CacheOptions{}.pages;
  options.memory_fraction = config.memory_fraction;
  options.cache.slots = config.slots;
  BATON_ASSIGN_OR_RETURN(options.cache.kv_format, ParseKvFormat(config.kv_cache_dtype));
  BATON_ASSIGN_OR_RETURN(options.cache.index_format, ParseIndexFormat(config.index_cache_dtype));
  BATON_ASSIGN_OR_RETURN(options.forward.numerics, ParseNumerics(config.numerics));
  options.forward.deterministic = config.enable_deterministic_inference;
  options.forward.index_topk = config.index_topk;
  options.forward.threads = config.threads;
  options.forward.max_rows = config.step_tokens + int64_t{config.slots} * (1 + config.draft_tokens);
  options.draft_tokens = config.draft_tokens;
  options.parallel = {.size = config.expert_parallel_size,
                      .rank = config.expert_parallel_rank,
                      .address = config.expert_parallel_address,
                      .stall = config.expert_parallel_stall,
                      .start = config.expert_parallel_start};
  options.prefix.pages = config.prefix_cache > 0 ? std::numeric_limits<int64_t>::max() : 0;
  options.prefix_percent = config.prefix_cache;
  options.prefix.states = config.prefix_cache_states;
  return options;
}

ChunkLimits MakeChunkLimits(const OptionsConfig& config) {
  ChunkLimits limits;
  limits.step_tokens = config.step_tokens;
  limits.chunk_tokens = config.chunk_tokens;
  return limits;
}

}  // namespace baton::engine
