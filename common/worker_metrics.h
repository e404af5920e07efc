#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "common/metrics.h"
#include "common/worker_load.h"

// What prefill and decode workers export: the same names with the same labels, so that dashboards
// and merged endpoints need not know the role. Durations are per leg and measured on one process:
// monotonic clocks of two machines do not compare.

namespace baton {

// How something ended, as a closed label.
enum class Outcome {
  kOk,
  kCancelled,  // by the client or by the caller, who has enough at a stop string too
  kInvalid,    // the request is at fault
  kOverload,   // no room now
  kDeadline,
  kMismatch,     // the two sides do not fit: FAILED_PRECONDITION
  kUnavailable,  // a peer is gone or refuses
  kInternal,
};
constexpr auto LabelValues(Outcome) {
  return std::to_array<const char*>({"ok", "cancelled", "invalid", "overload", "deadline",
                                     "mismatch", "unavailable", "internal"});
}
Outcome OutcomeOf(const absl::Status& status);

// Legs of a request in the order in which they happen.
enum class Stage { kPrefillQueue, kPrefill, kKvAlloc, kKvTransfer, kDecodeQueue, kDecode };
constexpr auto LabelValues(Stage) {
  return std::to_array<const char*>(
      {"prefill_queue", "prefill", "kv_alloc", "kv_transfer", "decode_queue", "decode"});
}

// Of frames, as a receiver answers them.
enum class FrameLabel { kAccepted, kStale, kCorrupt, kRejected };
constexpr auto LabelValues(FrameLabel) {
  return std::to_array<const char*>({"accepted", "stale", "corrupt", "rejected"});
}

enum class Direction { kSent, kReceived };
constexpr auto LabelValues(Direction) { return std::to_array<const char*>({"sent", "received"}); }

enum class TransportLabel { kLoopback, kGrpc, kShm, kCudaIpc, kNccl, kOther };
constexpr auto LabelValues(TransportLabel) {
  return std::to_array<const char*>({"loopback", "grpc", "shm", "cuda_ipc", "nccl", "other"});
}
// Of a negotiated transport's name; kOther for a name that is not in the list.
TransportLabel TransportLabelOf(std::string_view transport);

// Metrics are updated from any thread. `metrics` must outlive this object.
class WorkerMetrics {
 public:
  explicit WorkerMetrics(Metrics& metrics);

  // baton_kv_pages{pool="kv",owner}, baton_kv_pages_total, baton_kv_pages_unaccounted (0 unless
  // pages leak), baton_state_slots{state}: read at each scrape. One page id addresses every pool of
  // compressed entries alike, hence a single pool. `read` is thread-safe; the returned handle ends
  // it before what it reads goes away.
  [[nodiscard]] Metrics::Reader ExportOccupancy(std::function<CacheOccupancy()> read);
  // baton_requests_running and baton_requests_waiting, read at each scrape.
  struct RequestCounts {
    int64_t running = 0;
    int64_t waiting = 0;
  };
  [[nodiscard]] Metrics::Reader ExportRequests(std::function<RequestCounts()> read);

  prometheus::Counter& kv_transfer_bytes(std::string_view transport, Direction direction) {
    return transfer_bytes_[static_cast<size_t>(direction)][TransportLabelOf(transport)];
  }
  prometheus::Histogram& kv_transfer_duration(std::string_view transport) {
    return transfer_duration_[TransportLabelOf(transport)];
  }

  // Moves kv_frames on to what a sender or a receiver has counted by now. One caller at a time.
  void CountFrames(std::span<const uint64_t, LabelValues(FrameLabel{}).size()> by_verdict);

  // In requests; a hand-off attempt on a prefill worker is a request of its own.
  const ByLabel<prometheus::Counter, Outcome> requests;
  const ByLabel<prometheus::Histogram, Stage> stage_duration;  // seconds

  prometheus::Gauge& kv_transfers_inflight;
  const ByLabel<prometheus::Counter, Outcome> kv_transfers;
  const ByLabel<prometheus::Counter, FrameLabel> kv_frames;
  const ByLabel<prometheus::Counter, Outcome> handshakes;
  const ByLabel<prometheus::Counter, TransportLabel> transports_chosen;   // by handshakes
  const ByLabel<prometheus::Counter, TransportLabel> transports_refused;  // did not work when tried

  prometheus::Counter& prompt_tokens;  // computed or found in the prefix cache
  prometheus::Counter& generation_tokens;
  prometheus::Counter& prefix_cached_tokens;    // the part of prompt_tokens that was not computed
  prometheus::Counter& prefix_cache_hits;       // prompts of which something was found
  prometheus::Counter& prefix_cache_misses;     // prompts of which nothing was
  prometheus::Counter& prefix_cache_evictions;  // pages
  prometheus::Histogram& engine_step_duration;  // seconds
  prometheus::Histogram& engine_batch_tokens;   // positions computed in a step
  prometheus::Histogram& engine_batch_sequences;
  prometheus::Counter& spec_decode_drafted_tokens;
  prometheus::Counter& spec_decode_accepted_tokens;

 private:
  Metrics& metrics_;
  std::array<uint64_t, LabelValues(FrameLabel{}).size()> counted_frames_{};
  std::array<ByLabel<prometheus::Counter, TransportLabel>, 2> transfer_bytes_;
  ByLabel<prometheus::Histogram, TransportLabel> transfer_duration_;
};

}  // namespace baton
