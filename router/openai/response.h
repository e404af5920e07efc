#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "router/dispatch/generation_events.h"
#include "router/metrics.h"
#include "router/openai/error.h"
#include "router/tokenizer/tokenizer.h"

// Bodies and stream chunks of the two generating endpoints.

namespace baton::router {

// What every piece of one answer repeats.
struct ResponseHeader {
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string id = {};  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;  // Unix seconds
  std::string model = {};
  bool include_usage = false;     // of streams: a last chunk with the usage, null in the others,
  bool continuous_usage = false;  // or, as servers of open models offer, the usage so far
  size_t choice = 0;              // of a stream's chunk
  FieldNames field_names = {};    // for errors
  // Spells the tokens whose log-probabilities are asked for; null: none are.
  const Tokenizer* logprobs_tokenizer = nullptr;
};

struct FinishedChoice {
  GenerationDelta all;  // of answers that are not streamed
  GenerationEnd end;
};

// The body of an answer that is not streamed, a line as all bodies are. Usage counts the prompt
// once and the tokens of all choices. Its member "baton", outside of OpenAI's API, says how the
// first of them was served:
//   prefill_worker   host:port, null when the decode worker prefilled by itself or did not say
//   decode_worker    host:port
//   handoff_bytes    cache bytes moved between the two
//   ttft_ms          arrival at the router to the first token
//   attempts         1 unless a failed attempt was replaced
//   prefill_ms, handoff_ms, decode_queue_ms   parts of the way to the first token
//   prefill_name, decode_name   of workers that have names
std::string CompleteBody(const ResponseHeader& header, std::span<const FinishedChoice> choices);

// Server-sent events, each "data: <JSON>\n\n".
std::string OpeningEvent(const ResponseHeader& header);  // chat: the role; completions: nothing
std::string DeltaEvents(const ResponseHeader& header, const GenerationDelta& delta);
// The finish reason of a choice while others go on.
std::string FinishEvent(const ResponseHeader& header, const GenerationEnd& end);
// That of the last choice, usage if asked for, and "data: [DONE]". The last chunk has the member
// "baton".
std::string ClosingEvents(const ResponseHeader& header, std::span<const FinishedChoice> choices);
// An answer that fails after it began: the error, and no [DONE].
std::string ErrorEvent(const ApiError& error);

}  // namespace baton::router
