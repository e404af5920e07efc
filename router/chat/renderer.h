#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/chat/chat_prompts.h"
#include "router/chat/message.h"
#include "router/tokenizer/tokenizer.h"

namespace baton::router {

enum class ThinkingMode { kChat, kThinking };
// None and low render alike, and high with them unless the model has a text for it.
enum class ReasoningEffort { kNone, kLow, kHigh, kMax };

struct RenderOptions {
  ThinkingMode thinking_mode = ThinkingMode::kChat;
  // Leave out the reasoning, and developer turns, before the last user turn. Off by itself as soon
  // as any message has tools: then the model needs its earlier reasoning.
  bool drop_thinking = true;
  ReasoningEffort reasoning_effort = ReasoningEffort::kNone;
  // Messages that were rendered before and stand in front of the new ones: they decide how these
  // are rendered, but are not in the result, nor is BOS.
  std::span<const Message> context = {};
};

// The prompt for `messages` in the model's format, up to where the model starts to write. Texts of
// the messages are AddedTokenText::kPlain segments, so that nothing a client sends becomes a
// control token; what the format itself adds is kMatch. InvalidArgument for an empty list or a
// developer message without content, naming the message's index. Any thread.
absl::StatusOr<std::vector<TextSegment>> RenderPrompt(std::span<const Message> messages,
                                                      const ChatPrompts& prompts,
                                                      const RenderOptions& options);

// The prompt as one text, which is how the model's own encoder returns it.
std::string PromptText(std::span<const TextSegment> segments);

}  // namespace baton::router
