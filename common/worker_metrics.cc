#include "common/worker_metrics.h"

#include <string>

namespace baton {
namespace {

ByLabel<prometheus::Counter, TransportLabel> TransferBytes(Metrics& metrics, Direction direction) {
  std::array<prometheus::Counter*, LabelValues(TransportLabel{}).size()> counters;
  for (size_t i = 0; i < counters.size(); ++i) {
    counters[i] = &metrics.AddCounter(
        "baton_kv_transfer_bytes_total", "Payload bytes of hand-offs, without frame headers.",
        {{"transport", LabelValues(TransportLabel{})[i]},
         {"direction", LabelValues(Direction{})[static_cast<size_t>(direction)]}});
  }
  return ByLabel<prometheus::Counter, TransportLabel>(counters);
}

void WriteOccupancy(GaugeWriter& gauges, const CacheOccupancy& cache) {
  const struct {
    const char* owner;
    int64_t pages;
  } owners[] = {{"free", cache.pages_free},
                {"sequences", cache.pages_sequences},
                {"prefix", cache.pages_prefix},
                {"transfer", cache.pages_transfer},
                {"quarantine", cache.pages_quarantine}};
  int64_t accounted = 0;
  for (const auto& [owner, pages] : owners) {
    gauges.Set("baton_kv_pages", "Cache pages by who holds them.", static_cast<double>(pages),
               {{"pool", "kv"}, {"owner", owner}});
    accounted += pages;
  }
  gauges.Set("baton_kv_pages_total", "Cache pages there are.",
             static_cast<double>(cache.pages_total), {{"pool", "kv"}});
  gauges.Set("baton_kv_pages_unaccounted",
             "Pages that no owner accounts for, or that two do (negative). Not 0: a leak.",
             static_cast<double>(cache.pages_total - accounted), {{"pool", "kv"}});
  const std::string slots_help = "Slots for per-sequence state (window rows, compressor state).";
  gauges.Set("baton_state_slots", slots_help, static_cast<double>(cache.slots_free),
             {{"state", "free"}});
  gauges.Set("baton_state_slots", slots_help,
             static_cast<double>(cache.slots_total - cache.slots_free), {{"state", "used"}});
}

}  // namespace

Outcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Outcome::kOk;
    case absl::StatusCode::kCancelled:
      return Outcome::kCancelled;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return Outcome::kInvalid;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kOverload;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kDeadline;
    case absl::StatusCode::kFailedPrecondition:
      return Outcome::kMismatch;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return Outcome::kUnavailable;
    default:
      return Outcome::kInternal;
  }
}

TransportLabel TransportLabelOf(std::string_view transport) {
  constexpr auto kNames = LabelValues(TransportLabel{});
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (transport == kNames[i]) return static_cast<TransportLabel>(i);
  }
  return TransportLabel::kOther;
}

WorkerMetrics::WorkerMetrics(Metrics& metrics)
    : requests(metrics.AddCounters<Outcome>("baton_requests_total", "Requests that ended, by how.",
                                            "outcome")),
      stage_duration(metrics.AddHistograms<Stage>("baton_stage_duration_seconds",
                                                  "Time a request spent in each leg.",
                                                  kDurationBuckets, "stage")),
      kv_transfers_inflight(
          metrics.AddGauge("baton_kv_transfers_inflight", "Hand-offs that are under way.")),
      kv_transfers(metrics.AddCounters<Outcome>("baton_kv_transfers_total",
                                                "Hand-offs that ended, by how.", "outcome")),
      kv_frames(metrics.AddCounters<FrameLabel>(
          "baton_kv_frames_total", "Frames received or answered, by verdict.", "verdict")),
      handshakes(metrics.AddCounters<Outcome>(
          "baton_handshakes_total", "Handshakes with peers, by how they ended.", "outcome")),
      transports_chosen(metrics.AddCounters<TransportLabel>(
          "baton_kv_transports_chosen_total", "Handshakes, by the transport agreed on.",
          "transport")),
      transports_refused(metrics.AddCounters<TransportLabel>(
          "baton_kv_transports_refused_total",
          "Handshakes in which a transport that both sides have did not work.", "transport")),
      prompt_tokens(metrics.AddCounter("baton_prompt_tokens_total",
                                       "Prompt tokens, computed or found in the prefix cache.")),
      generation_tokens(metrics.AddCounter("baton_generation_tokens_total", "Generated tokens.")),
      prefix_cached_tokens(metrics.AddCounter(
          "baton_prefix_cached_tokens_total",
          "Prompt tokens that were found in the prefix cache instead of being computed.")),
      prefix_cache_hits(
          metrics.AddCounter("baton_prefix_cache_hits_total",
                             "Prompts of which the prefix cache had something when they began.")),
      prefix_cache_misses(metrics.AddCounter("baton_prefix_cache_misses_total",
                                             "Prompts of which it had nothing.")),
      prefix_cache_evictions(metrics.AddCounter("baton_prefix_cache_evictions_total",
                                                "Pages that the prefix cache let go.")),
      engine_step_duration(metrics.AddHistogram("baton_engine_step_duration_seconds",
                                                "One forward pass over a batch.", kHandoffBuckets)),
      engine_batch_tokens(metrics.AddHistogram("baton_engine_batch_tokens",
                                               "Positions computed in a step.", kCountBuckets)),
      engine_batch_sequences(metrics.AddHistogram("baton_engine_batch_sequences",
                                                  "Sequences in a step.", kCountBuckets)),
      spec_decode_drafted_tokens(
          metrics.AddCounter("baton_spec_decode_drafted_tokens_total", "Tokens drafted by MTP.")),
      spec_decode_accepted_tokens(metrics.AddCounter("baton_spec_decode_accepted_tokens_total",
                                                     "Drafted tokens that were accepted.")),
      metrics_(metrics),
      transfer_bytes_{TransferBytes(metrics, Direction::kSent),
                      TransferBytes(metrics, Direction::kReceived)},
      transfer_duration_(metrics.AddHistograms<TransportLabel>(
          "baton_kv_transfer_duration_seconds", "Last chunk computed until every byte is verified.",
          kHandoffBuckets, "transport")) {}

void WorkerMetrics::CountFrames(
    std::span<const uint64_t, LabelValues(FrameLabel{}).size()> by_verdict) {
  for (size_t i = 0; i < by_verdict.size(); ++i) {
    kv_frames[static_cast<FrameLabel>(i)].Increment(
        static_cast<double>(by_verdict[i] - counted_frames_[i]));
    counted_frames_[i] = by_verdict[i];
  }
}

Metrics::Reader WorkerMetrics::ExportOccupancy(std::function<CacheOccupancy()> read) {
  return metrics_.AddReader(
      [read = std::move(read)](GaugeWriter& gauges) { WriteOccupancy(gauges, read()); });
}

Metrics::Reader WorkerMetrics::ExportRequests(std::function<RequestCounts()> read) {
  return metrics_.AddReader([read = std::move(read)](GaugeWriter& gauges) {
    const RequestCounts counts = read();
    gauges.Set("baton_requests_running", "Requests being computed.",
               static_cast<double>(counts.running));
    gauges.Set("baton_requests_waiting", "Requests that wait for their turn.",
               static_cast<double>(counts.waiting));
  });
}

}  // namespace baton
