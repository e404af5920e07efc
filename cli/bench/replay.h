#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bench/trace.h"
#include "cli/bench/workload.h"
#include "cli/http_client.h"

namespace baton::cli {

struct ReplayOptions {
  Url url;
  std::string authorization = {}, ca_file = {};  // see HttpOptions
  std::string model = {};
  int concurrency = 0;  // closed loop: so many requests at any time; 0: open loop, by timestamps
  double speed = 1;     // open loop: timestamps pass so many times as fast
  int max_in_flight = 1024;  // open loop: what is due beyond it waits, and its latency counts that
  double temperature = 0;
  PromptOptions prompts = {};
  std::chrono::nanoseconds silence_timeout = std::chrono::minutes(10);
};

// One request as it went. Times are seconds since the beginning of the run.
struct RequestRecord {
  bool attempted = false;  // false: the run was interrupted before its turn
  absl::Status status = {};
  double due = 0;    // when it should have been sent; from here latencies count
  double sent = 0;   // when it was
  double first = 0;  // first token seen
  double last = 0;   // last token seen
  double ended = 0;
  std::vector<double> gaps = {};  // seconds between tokens; k tokens at once are k equal gaps
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t first_tokens = 0;  // tokens that came with the first piece
  int64_t handoff_bytes = 0;
  std::string prefill_worker = {}, decode_worker = {};

  double ttft() const { return first - due; }
  double e2e() const { return ended - due; }
  // Seconds per token after the first piece; NaN when there is none.
  double tpot() const;
};

// Sends the requests and waits for their answers: at their times, whatever the server does (so that
// a slow answer delays no later request: no coordinated omission), or as `concurrency` clients each
// of which takes the next session, or single request, when it has finished one. `on_done` is called
// with the number of requests that have ended. Ends early, keeping what there is, on Interrupts.
// UNAVAILABLE when the system has no thread for a request under way: fewer would be another load.
absl::StatusOr<std::vector<RequestRecord>> Replay(const std::vector<TraceRequest>& requests,
                                                  const ReplayOptions& options,
                                                  const std::function<void(int64_t done)>& on_done);

}  // namespace baton::cli
