#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/distribution.h"
#include "cli/bench/trace.h"

namespace baton::cli {

// A synthetic workload, which is a trace.
struct WorkloadOptions {
  int64_t requests = 100;
  double rate = 1;           // sessions begin so often a second, as a Poisson process; 0: at once
  LengthDistribution input;  // tokens of a session's first message, and of each further one
  LengthDistribution output;
  int turns = 1;               // of a session: a later prompt is the whole conversation so far,
                               // in which other tokens stand for the answers
  double think_time_s = 1;     // mean time between two turns of a session, exponential
  int64_t shared_prefix = 0;   // tokens with which the prompts of a group begin
  int prefix_groups = 1;       // sessions are spread over so many shared prefixes
  int64_t block_tokens = 512;  // that a hash id stands for
  uint64_t seed = 1;
};

// Sorted by time. The same options give the same trace.
std::vector<TraceRequest> MakeWorkload(const WorkloadOptions& options);

// How prompts are made of tokens.
struct PromptOptions {
  int64_t block_tokens = 512;  // that a hash id stands for
  int32_t low = 16;            // lowest token id
  int32_t high = 1000;         // one more than the highest
  uint64_t seed = 1;           // of other seeds no two prompts are alike: no cache knows them
};

// The prompt of a request: each block of it follows from its hash id and the seed alone, and a
// block without an id from `index`, the request's place in the trace, as well.
std::vector<int32_t> PromptTokens(const TraceRequest& request, size_t index,
                                  const PromptOptions& options);

}  // namespace baton::cli
