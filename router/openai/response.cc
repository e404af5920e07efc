#include "router/openai/response.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "nlohmann/json.hpp"
#include "router/openai/error.h"
#include "router/openai/logprobs.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Event(const Json& json) { return absl::StrCat("data: ", Dump(json), "\n\n"); }

bool IsChat(const ResponseHeader& header) { return header.endpoint == Endpoint::kChatCompletions; }

Json FinishReasonJson(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kNone:
      break;
  }
  return nullptr;
}

Json Envelope(const ResponseHeader& header, std::string_view object, Json choices) {
  return {{"id", header.id},
          {"object", object},
          {"created", header.created},
          {"model", header.model},
          {"system_fingerprint", "baton-" + std::string(Version())},
          {"choices", std::move(choices)}};
}

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

template <typename Duration>
double Milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

Json BatonJson(const GenerationEnd& end) {
  const HandoffFigures& handoff = end.handoff;
  Json json = {{"prefill_worker",
                handoff.prefill_address.empty() ? Json(nullptr) : Json(handoff.prefill_address)},
               {"decode_worker", handoff.decode_address},
               {"handoff_bytes", handoff.bytes},
               {"ttft_ms", Milliseconds(end.time_to_first_token)},
               {"attempts", end.attempts},
               {"prefill_ms", Milliseconds(handoff.prefill)},
               {"handoff_ms", Milliseconds(handoff.transfer)},
               {"decode_queue_ms", Milliseconds(handoff.decode_queue)}};
  if (!handoff.prefill_name.empty()) json["prefill_name"] = handoff.prefill_name;
  if (!handoff.decode_name.empty()) json["decode_name"] = handoff.decode_name;
  return json;
}

Json ToolCallJson(const ToolCallDelta& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// Pieces of one call put together.
Json WholeToolCalls(const std::vector<ToolCallDelta>& pieces) {
  std::vector<ToolCallDelta> calls;
  for (const ToolCallDelta& piece : pieces) {
    if (static_cast<size_t>(piece.index) >= calls.size()) calls.resize(piece.index + 1);
    ToolCallDelta& call = calls[piece.index];
    call.id += piece.id;
    call.name += piece.name;
    call.arguments += piece.arguments;
  }
  Json list = Json::array();
  for (const ToolCallDelta& call : calls) list.push_back(ToolCallJson(call));
  return list;
}

Json MessageJson(const GenerationDelta& all) {
  Json message = {{"role", "assistant"}};
  const bool only_calls = all.text.empty() && !all.tool_calls.empty();
  message["content"] = only_calls ? Json(nullptr) : Json(all.text);
  if (!all.reasoning.empty()) message["reasoning_content"] = all.reasoning;
  if (!all.tool_calls.empty()) message["tool_calls"] = WholeToolCalls(all.tool_calls);
  return message;
}

Json DeltaJson(const ToolCallDelta& call) {
  Json json = {{"index", call.index}};
  if (!call.name.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    json["function"]["name"] = call.name;
  }
  json["function"]["arguments"] = call.arguments;
  return json;
}

Json LogprobsJson(const ResponseHeader& header, const GenerationDelta& delta) {
  if (header.logprobs_tokenizer == nullptr) return nullptr;
  return IsChat(header) ? ChatLogprobs(delta.answer_tokens, *header.logprobs_tokenizer)
                        : CompletionLogprobs(delta.answer_tokens, *header.logprobs_tokenizer);
}

// A chunk with one choice; `content` is the member "delta" of chats and "text" of completions.
Json Chunk(const ResponseHeader& header, Json content, FinishReason reason,
           const Usage* so_far = nullptr, Json logprobs = nullptr) {
  const bool chat = IsChat(header);
  Json choice = {{"index", header.choice}};
  choice[chat ? "delta" : "text"] = std::move(content);
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = FinishReasonJson(reason);
  Json chunk = Envelope(header, chat ? "chat.completion.chunk" : "text_completion",
                        Json::array({std::move(choice)}));
  if (header.include_usage) chunk["usage"] = nullptr;
  if (header.continuous_usage && so_far != nullptr) chunk["usage"] = UsageJson(*so_far);
  return chunk;
}

Json FinishChunk(const ResponseHeader& header, const GenerationEnd& end) {
  return Chunk(header, IsChat(header) ? Json::object() : Json(""), end.finish_reason, &end.usage);
}

// The prompt counts once, as the first choice met it.
Usage UsageOf(std::span<const FinishedChoice> choices) {
  Usage usage = choices.front().end.usage;
  for (const FinishedChoice& other : choices.subspan(1)) {
    usage.completion_tokens += other.end.usage.completion_tokens;
  }
  return usage;
}

}  // namespace

std::string CompleteBody(const ResponseHeader& header, std::span<const FinishedChoice> choices) {
  Json list = Json::array();
  for (const auto& [all, end] : choices) {
    Json choice = {{"index", list.size()}};
    if (IsChat(header)) {
      choice["message"] = MessageJson(all);
    } else {
      choice["text"] = all.text;
    }
    choice["logprobs"] = LogprobsJson(header, all);
    choice["finish_reason"] = FinishReasonJson(end.finish_reason);
    list.push_back(std::move(choice));
  }
  Json body =
      Envelope(header, IsChat(header) ? "chat.completion" : "text_completion", std::move(list));
  body["usage"] = UsageJson(UsageOf(choices));
  body["baton"] = BatonJson(choices.front().end);
  return Dump(body) + "\n";
}

std::string OpeningEvent(const ResponseHeader& header) {
  if (!IsChat(header)) return "";
  return Event(Chunk(header, {{"role", "assistant"}, {"content", ""}}, FinishReason::kNone));
}

std::string DeltaEvents(const ResponseHeader& header, const GenerationDelta& delta) {
  std::string events;
  // Log-probabilities go with the first.
  Json logprobs = delta.answer_tokens.empty() ? nullptr : LogprobsJson(header, delta);
  const auto add = [&](Json content) {
    events += Event(Chunk(header, std::move(content), FinishReason::kNone, &delta.usage,
                          std::exchange(logprobs, nullptr)));
  };
  if (!IsChat(header)) {
    if (!delta.text.empty() || !logprobs.is_null()) add(delta.text);
    return events;
  }
  if (!delta.reasoning.empty()) add({{"reasoning_content", delta.reasoning}});
  if (!delta.text.empty()) add({{"content", delta.text}});
  for (const ToolCallDelta& call : delta.tool_calls) {
    add({{"tool_calls", Json::array({DeltaJson(call)})}});
  }
  if (!logprobs.is_null()) add(Json::object());
  return events;
}

std::string FinishEvent(const ResponseHeader& header, const GenerationEnd& end) {
  return Event(FinishChunk(header, end));
}

std::string ClosingEvents(const ResponseHeader& header, std::span<const FinishedChoice> choices) {
  Json last = FinishChunk(header, choices[header.choice].end);
  std::string events;
  if (header.include_usage) {
    events = Event(last);
    last = Envelope(header, IsChat(header) ? "chat.completion.chunk" : "text_completion",
                    Json::array());
    last["usage"] = UsageJson(UsageOf(choices));
  }
  last["baton"] = BatonJson(choices.front().end);
  return absl::StrCat(events, Event(last), "data: [DONE]\n\n");
}

std::string ErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", ErrorJson(error), "\n\n");
}

}  // namespace baton::router
