#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/token_logprobs.h"
#include "common/ids.h"

// What a generation yields, in the same terms for every front end.

namespace baton::router {

// Cumulative over the request.
struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;

  friend bool operator==(const Usage&, const Usage&) = default;
};

enum class FinishReason { kNone, kStop, kLength, kToolCalls };

// A piece of one tool call; pieces of a call carry its index.
struct ToolCallDelta {
  int index = 0;
  std::string id = {};         // on the first piece
  std::string name = {};       // on the first piece
  std::string arguments = {};  // JSON text to append

  friend bool operator==(const ToolCallDelta&, const ToolCallDelta&) = default;
};

// A token that gives text, and how likely the model found it.
struct AnswerToken {
  TokenLogprobs logprobs;
  size_t text_offset = 0;     // characters of the model's text before the one it begins in
  bool is_reasoning = false;  // up to the end of thinking
};

struct GenerationDelta {
  std::string text;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;
  std::vector<int32_t> token_ids;
  // If log-probabilities were asked for: of the tokens whose text is in the answer. They come with
  // their text or before it, if it is held back.
  std::vector<AnswerToken> answer_tokens;
  Usage usage;

  bool HasText() const { return !text.empty() || !reasoning.empty() || !tool_calls.empty(); }
  bool IsEmpty() const { return !HasText() && token_ids.empty() && answer_tokens.empty(); }
};

// Reported by the decode worker about the hand-off.
struct HandoffFigures {
  std::string prefill_address = {};  // empty: prefilled by the decode worker
  Incarnation prefill_incarnation = 0;
  std::string decode_address = {};
  Incarnation decode_incarnation = 0;
  std::string prefill_name = {}, decode_name = {};  // as far as they have some: the router's to say
  uint64_t bytes = 0;
  std::chrono::microseconds prefill{};   // queue + compute on the prefill worker
  std::chrono::microseconds transfer{};  // last chunk computed until every byte was verified
  std::chrono::microseconds decode_queue{};
};

struct GenerationEnd {
  absl::Status status;  // other than OK: nothing else but `attempts` need be set
  FinishReason finish_reason = FinishReason::kNone;
  std::string matched_stop;  // the stop string that ended it, if one did
  Usage usage;
  HandoffFigures handoff;
  // From arrival at the router, or from its start if that waited for another choice.
  std::chrono::nanoseconds time_to_first_token{};
  uint32_t attempts = 0;
};

// Front ends implement it. Calls come one at a time, from any thread, and must neither block nor
// call back into the generation. OnEnd comes exactly once and last.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // The first token of an attempt has come: its prompt has been computed.
  virtual void OnFirstToken() {}
  // Deltas of a streamed generation, in order. Once the first was handed over the request can no
  // longer be retried on another worker.
  virtual void OnDelta(GenerationDelta delta) = 0;
  // `all` holds the whole output of a generation that is not streamed, else nothing.
  virtual void OnEnd(GenerationDelta all, const GenerationEnd& end) = 0;
};

}  // namespace baton::router
