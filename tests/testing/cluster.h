#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/decode.pb.h"
#include "common/base/token_logprobs.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "decode/worker.h"
#include "prefill/worker.h"
#include "router/router.h"
#include "tests/testing/eventually.h"

// A whole cluster in one process: real workers and router on loopback ports of their own, CPU,
// needle-17m.

namespace baton::testing {

struct ClusterOptions {
  int prefill = 1;
  int decode = 1;
  bool router = false;
  // Change a worker's configuration before it starts; may be empty.
  std::function<void(int index, prefill::PrefillConfig&)> tune_prefill;
  std::function<void(int index, decode::DecodeConfig&)> tune_decode;
};

// What a request came to.
struct Outcome {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
  v1::ServedBy served_by;
};

// A request to a decode worker, as a router would make it. Thread-safe.
class Generation {
 public:
  struct Request {
    std::vector<int32_t> prompt;
    SamplingParams sampling{};
    std::vector<std::string> prefill_workers{};  // addresses, best first; empty: local prefill
    std::optional<Clock::Duration> timeout{};
  };
  static std::unique_ptr<Generation> Start(const std::string& decode_address,
                                           const Request& request);
  // Cancels and waits.
  ~Generation();

  // False when the request ended, or nothing came within kPatience.
  bool WaitForTokens(size_t count);
  void Cancel();
  // DEADLINE_EXCEEDED of its own when the request does not end within kPatience.
  Outcome Wait();

 private:
  struct State;
  explicit Generation(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class Cluster {
 public:
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  ~Cluster();

  worker::Worker& prefill(int index = 0) { return *prefill_.at(index); }
  worker::Worker& decode(int index = 0) { return *decode_.at(index); }
  router::Router& router() { return *router_; }
  std::vector<std::string> prefill_addresses() const;

  // Stops a worker and starts another at the same address, with another incarnation.
  absl::Status RestartPrefill(int index);

  std::unique_ptr<Generation> Generate(Generation::Request request, int decode_index = 0);
  // Over all prefill workers in order.
  Outcome Run(std::vector<int32_t> prompt, const SamplingParams& sampling);
  // Without prefill workers: what a single engine says.
  Outcome RunLocally(std::vector<int32_t> prompt, const SamplingParams& sampling);

  // Waits until no worker has anything to do, then recounts: OK when every page and slot of every
  // worker is free, or kept by its prefix cache.
  absl::Status CheckIdleAndEmpty();

 private:
  explicit Cluster(const ClusterOptions& options) : options_(options) {}
  absl::StatusOr<std::unique_ptr<worker::Worker>> StartPrefill(int index,
                                                               const std::string& listen);

  const ClusterOptions options_;
  std::vector<std::unique_ptr<worker::Worker>> prefill_;
  std::vector<std::unique_ptr<worker::Worker>> decode_;
  std::unique_ptr<router::Router> router_;
};

}  // namespace baton::testing
