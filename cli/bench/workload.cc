#include "cli/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace baton::cli {
namespace {

// Blocks of a session: those that lie whole within the shared prefix belong to its group.
class BlockIds {
 public:
  explicit BlockIds(const WorkloadOptions& options)
      : shared_(options.shared_prefix / options.block_tokens),
        block_tokens_(options.block_tokens),
        next_(shared_ * options.prefix_groups) {}

  // Makes `ids` those of a prompt that has grown to `tokens`. A block that was partial keeps its
  // id: what there was of it stays as it is.
  void Extend(int64_t group, int64_t tokens, std::vector<int64_t>& ids) {
    const int64_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
    for (int64_t block = static_cast<int64_t>(ids.size()); block < blocks; ++block) {
      ids.push_back(block < shared_ ? group * shared_ + block : next_++);
    }
  }

 private:
  const int64_t shared_;  // blocks
  const int64_t block_tokens_;
  int64_t next_;
};

uint64_t Mixed(uint64_t value) {  // SplitMix64
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

std::vector<TraceRequest> MakeWorkload(const WorkloadOptions& options) {
  std::mt19937_64 random(options.seed);
  BlockIds blocks(options);
  std::vector<TraceRequest> requests;
  double begin_s = 0;
  for (int64_t session = 0; static_cast<int64_t>(requests.size()) < options.requests; ++session) {
    double time_s = begin_s;
    int64_t tokens = options.shared_prefix;
    std::vector<int64_t> ids;
    for (int turn = 0; turn < options.turns; ++turn) {
      if (static_cast<int64_t>(requests.size()) == options.requests) break;
      tokens += options.input.Sample(random);
      blocks.Extend(session % options.prefix_groups, tokens, ids);
      const int64_t answer = options.output.Sample(random);
      requests.push_back({.timestamp_ms = std::llround(time_s * 1e3),
                          .input_length = tokens,
                          .output_length = answer,
                          .hash_ids = ids,
                          .session_id = options.turns > 1 ? session : -1});
      tokens += answer;
      if (options.rate > 0 && options.think_time_s > 0) {
        time_s += std::exponential_distribution<>(1 / options.think_time_s)(random);
      }
    }
    if (options.rate > 0) begin_s += std::exponential_distribution<>(options.rate)(random);
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.timestamp_ms < b.timestamp_ms; });
  return requests;
}

std::vector<int32_t> PromptTokens(const TraceRequest& request, size_t index,
                                  const PromptOptions& options) {
  const auto block_tokens = static_cast<size_t>(options.block_tokens);
  const auto choices = static_cast<uint64_t>(options.high - options.low);
  const uint64_t seed = Mixed(options.seed);
  std::vector<int32_t> tokens(static_cast<size_t>(request.input_length));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t block = i / block_tokens;
    const uint64_t key = block < request.hash_ids.size()
                             ? Mixed(seed ^ static_cast<uint64_t>(request.hash_ids[block]))
                             : Mixed(Mixed(~seed ^ index) ^ block);
    tokens[i] = options.low + static_cast<int32_t>(Mixed(key + i % block_tokens) % choices);
  }
  return tokens;
}

}  // namespace baton::cli
