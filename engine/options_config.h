#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/config.h"
#include "engine/chunk_scheduler.h"
#include "engine/engine.h"

// The engine's options as flags and YAML files spell them, bound once for both roles.

namespace baton::engine {

struct OptionsConfig {
  // Affects behaviour: must be equal on workers that exchange caches (but for draft_tokens).
  std::string model_dir{};
  std::string load_format = "safetensors";
  int num_layers = 0;  // 0: all
  std::string numerics = "reference";
  bool enable_deterministic_inference = false;
  int index_topk = 0;  // 0: the checkpoint's value
  std::string kv_cache_dtype = "bf16";
  std::string index_cache_dtype = "bf16";
  int draft_tokens = 1;

  // Several devices a model: one process a rank.
  int expert_parallel_size = 1;
  int expert_parallel_rank = 0;
  std::string expert_parallel_address{};
  std::chrono::nanoseconds expert_parallel_stall = std::chrono::seconds(60);
  std::chrono::nanoseconds expert_parallel_start = std::chrono::minutes(30);

  // Affects performance.
  std::string device = "cpu";
  int threads = 0;  // 0: all cores
  int page_tokens = 256;
  int64_t pages = 0;  // 0: 512, on a GPU as many as memory_fraction leaves room for
  double memory_fraction = 0.9;
  int slots = 32;
  int prefix_cache = 100;  // percent of pages
  int prefix_cache_states = 64;
  int step_tokens = 4096;
  int chunk_tokens = 1024;
};

// `config` must outlive `parser`.
void BindOptions(OptionsConfig& config, ConfigParser& parser);

// INVALID_ARGUMENT naming the flag for a value that no option has.
absl::StatusOr<EngineOptions> MakeEngineOptions(const OptionsConfig& config);
ChunkLimits MakeChunkLimits(const OptionsConfig& config);

}  // namespace baton::engine
