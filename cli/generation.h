#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/http_client.h"
#include "nlohmann/json.hpp"

// One streamed request to a router, with everything that is measured and told about it.

namespace baton::cli {

// The member `baton` of an answer.
struct ServedBy {
  std::string prefill_worker;  // empty: the decode worker prefilled by itself
  std::string decode_worker;
  std::string prefill_name, decode_name;  // empty: has none
  int64_t handoff_bytes = 0;
  int attempts = 0;
  double ttft_ms = 0;  // as the router sees it; the parts of it:
  double prefill_ms = 0;
  double handoff_ms = 0;
  double decode_queue_ms = 0;
};

struct Generation {
  using Clock = std::chrono::steady_clock;

  std::string text;
  std::string reasoning;
  std::string finish_reason;  // empty when the caller ended it
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them
  int64_t completion_tokens = 0;
  ServedBy served_by;

  // Of each piece of text, and how many tokens of the answer there were with it.
  struct Arrival {
    Clock::time_point time;
    int64_t tokens = 0;
  };
  Clock::time_point sent;
  std::vector<Arrival> arrivals;
  Clock::time_point ended;
};

// A piece of the answer as it arrives; false ends the answer there.
using OnText = std::function<bool(absl::string_view text, bool reasoning)>;

// Posts `body` to `path`, /v1/chat/completions or /v1/completions, as a stream with usage. Errors
// are those of HttpClient and StatusOf; DATA_LOSS for an answer that is no such stream, UNAVAILABLE
// for one that breaks off.
absl::StatusOr<Generation> StreamGeneration(HttpClient& client, absl::string_view path,
                                            nlohmann::json body, const OnText& on_text = nullptr);

// The model that the server at the client's URL serves: the first of /v1/models.
absl::StatusOr<std::string> ServedModel(HttpClient& client);

}  // namespace baton::cli
