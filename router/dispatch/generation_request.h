#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/token_logprobs.h"
#include "common/ids.h"
#include "common/sampling_params.h"
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

// What may be asked for, whichever front end a request comes by. They check it, since they know how
// their clients name the fields.
inline constexpr float kMaxTemperature = 2;
inline constexpr float kMinTopP = 1e-6f;
inline constexpr int32_t kMinTopK = -1;  // -1 and 0: off
inline constexpr int32_t kMaxTokens = std::numeric_limits<int32_t>::max();
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 1024;  // each choice has tables as long for each
inline constexpr int64_t kMaxChoices = 16;           // answers to one prompt

// Unset fields take the model's defaults.
struct RequestedSampling {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  std::vector<LogitBias> logit_bias;  // at most kMaxLogitBiases, no token twice
  std::optional<uint64_t> seed;
  std::optional<uint32_t> max_tokens;
  uint32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;  // at most kMaxStopTokenIds
  bool ignore_eos = false;
  std::optional<int32_t> top_logprobs;  // of how many tokens beside each; unset: of none
};

struct GenerationRequest {
  RequestId id;
  std::string client_id = {};  // as ClientRequestId has it
  Endpoint endpoint = Endpoint::kOther;
  std::string model;  // empty: the one that is served
  // Raw text (nothing in it becomes a control token), token ids, or a conversation.
  std::variant<std::string, std::vector<int32_t>, ChatInput> input;
  RequestedSampling sampling;
  std::vector<std::string> stop;  // at most kMaxStopStrings, none empty or too long
  bool stream = false;
};

}  // namespace baton::router
