#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "router/chat/message.h"
#include "router/chat/renderer.h"
#include "router/metrics.h"

// A request as every front end hands it on: checked for form, not yet rendered or tokenized.

namespace baton::router {

struct ChatInput {
  std::vector<Message> messages = {};
  bool thinking = false;
  ReasoningEffort effort = ReasoningEffort::kNone;
};

// Unset fields take the model's defaults. Ranges are checked by the front end, which knows how its
// clients name the fields.
struct RequestedSampling {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> max_tokens;
  uint32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
};

inline constexpr size_t kMaxStopStrings = 16;

struct GenerationRequest {
  RequestId id;
  Endpoint endpoint = Endpoint::kOther;
  std::string model;  // empty: the one that is served
  // Raw text (nothing in it becomes a control token), token ids, or a conversation.
  std::variant<std::string, std::vector<int32_t>, ChatInput> input;
  RequestedSampling sampling;
  std::vector<std::string> stop;  // at most kMaxStopStrings, none empty
  bool stream = false;
};

}  // namespace baton::router
