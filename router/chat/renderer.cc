#include "router/chat/renderer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "router/chat/json_text.h"
#include "router/chat/markup.h"
#include "router/chat/turns.h"

namespace baton::router {
namespace {

class Renderer {
 public:
  Renderer(std::vector<Turn> turns, const ChatPrompts& prompts, const RenderOptions& options)
      : turns_(std::move(turns)),
        prompts_(prompts),
        is_thinking_(options.thinking_mode == ThinkingMode::kThinking),
        drop_thinking_(options.drop_thinking),
        effort_(options.reasoning_effort),
        last_user_(LastUserTurn(turns_)) {}

  std::vector<TextSegment> Render(size_t first_turn, bool with_bos) {
    if (with_bos) Markup(kBosToken);
    for (size_t i = first_turn; i < turns_.size(); ++i) {
      if (i == 0 && is_thinking_) {
        if (effort_ == ReasoningEffort::kMax) Markup(prompts_.reasoning_effort_max);
        if (effort_ == ReasoningEffort::kHigh) Markup(prompts_.reasoning_effort_high);
      }
      RenderTurn(i);
      RenderTransition(i);
    }
    return std::move(segments_);
  }

 private:
  void RenderTurn(size_t index) {
    const Turn& turn = turns_[index];
    switch (turn.role) {
      case Role::kSystem:
        Plain(ContentText(turn.message->content));
        RenderToolsAndFormat(*turn.message);
        return;
      case Role::kDeveloper:
        Markup(kUserToken);
        Plain(ContentText(turn.message->content));
        RenderToolsAndFormat(*turn.message);
        return;
      case Role::kLatestReminder:
        Markup(kLatestReminderToken);
        Plain(ContentText(turn.message->content));
        return;
      case Role::kAssistant:
        RenderAssistant(index);
        return;
      case Role::kUser:
      case Role::kTool:  // MergeTurns leaves none
        RenderUser(turn);
        return;
    }
  }

  void RenderUser(const Turn& turn) {
    Markup(kUserToken);
    for (size_t i = 0; i < turn.blocks.size(); ++i) {
      if (i > 0) Markup("\n\n");
      if (turn.blocks[i].is_tool_result) Markup("<tool_result>");
      Plain(turn.blocks[i].text);
      if (turn.blocks[i].is_tool_result) Markup("</tool_result>");
    }
  }

  void RenderToolsAndFormat(const Message& message) {
    if (!message.tools.empty()) {
      Markup("\n\n");
      Markup(prompts_.tools_before_schemas);
      for (size_t i = 0; i < message.tools.size(); ++i) {
        if (i > 0) Markup("\n");
        Plain(PythonJson(message.tools[i]));
      }
      Markup(prompts_.tools_after_schemas);
    }
    if (message.response_format.has_value() && !message.response_format->empty()) {
      Markup("\n\n");
      Markup(prompts_.response_format);
      Plain(PythonJson(*message.response_format));
    }
  }

  void RenderAssistant(size_t index) {
    const Turn& turn = turns_[index];
    const bool answers_task = index > 0 && turns_[index - 1].task.has_value();
    const bool is_current = !drop_thinking_ || static_cast<int>(index) > last_user_;
    if (is_thinking_ && !answers_task && is_current) {
      Plain(turn.message->reasoning_content);
      Markup(kThinkEndToken);
    }
    Plain(ContentText(turn.message->content));
    RenderToolCalls(turn.message->tool_calls);
    if (!turn.message->without_eos) Markup(kEosToken);
  }

  void RenderToolCalls(const std::vector<ToolCall>& calls) {
    if (calls.empty()) return;
    Markup("\n\n");
    Tag("<", "tool_calls>\n");
    for (const ToolCall& call : calls) {
      Tag("<", "invoke name=\"");
      Plain(call.name);
      Markup("\">\n");
      RenderArguments(call.arguments);
      Markup("\n");
      Tag("</", "invoke>\n");
    }
    Tag("</", "tool_calls>");
  }

  void RenderArguments(const std::string& arguments) {
    auto parsed = ParseJson(arguments);
    if (!parsed.ok() || !parsed->is_object()) {
      parsed = nlohmann::ordered_json::object({{"arguments", arguments}});
    }
    bool is_first = true;
    for (const auto& [key, value] : parsed->items()) {
      if (!std::exchange(is_first, false)) Markup("\n");
      Tag("<", "parameter name=\"");
      Plain(key);
      Markup(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
      Plain(value.is_string() ? value.get<std::string>() : PythonJson(value));
      Tag("</", "parameter>");
    }
  }

  // What stands between this turn and the text that the model writes or has written next.
  void RenderTransition(size_t index) {
    const Turn& turn = turns_[index];
    if (index + 1 < turns_.size() && turns_[index + 1].role != Role::kAssistant &&
        turns_[index + 1].role != Role::kLatestReminder) {
      return;
    }
    if (turn.task.has_value()) {
      if (*turn.task == Task::kAction) {
        Markup(kAssistantToken);
        Markup(is_thinking_ ? kThinkStartToken : kThinkEndToken);
      }
      Markup(TaskToken(*turn.task));
    } else if (turn.role == Role::kUser || turn.role == Role::kDeveloper) {
      const bool is_current = !drop_thinking_ || static_cast<int>(index) >= last_user_;
      Markup(kAssistantToken);
      Markup(is_thinking_ && is_current ? kThinkStartToken : kThinkEndToken);
    }
  }

  void Tag(std::string_view open, std::string_view rest) {
    Markup(open);
    Markup(kDsmlToken);
    Markup(rest);
  }

  void Plain(std::string_view text) { Append(text, AddedTokenText::kPlain); }
  void Markup(std::string_view text) { Append(text, AddedTokenText::kMatch); }

  void Append(std::string_view text, AddedTokenText kind) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().added_tokens != kind) {
      segments_.push_back({.text = {}, .added_tokens = kind});
    }
    segments_.back().text.append(text);
  }

  std::vector<Turn> turns_;
  const ChatPrompts& prompts_;
  const bool is_thinking_;
  const bool drop_thinking_;
  const ReasoningEffort effort_;
  const int last_user_;
  std::vector<TextSegment> segments_;
};

absl::Status CheckMessages(std::span<const Message> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("messages: the list is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == Role::kDeveloper && ContentText(messages[i].content).empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "]: a developer message needs content"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TextSegment>> RenderPrompt(std::span<const Message> messages,
                                                      const ChatPrompts& prompts,
                                                      const RenderOptions& options) {
  BATON_RETURN_IF_ERROR(CheckMessages(messages));
  std::vector<Turn> context = MergeTurns(options.context);
  std::vector<Turn> turns = context;
  for (Turn& turn : MergeTurns(messages)) turns.push_back(std::move(turn));
  SortToolResults(&turns);

  RenderOptions effective = options;
  const bool has_tools = std::any_of(turns.begin(), turns.end(), [](const Turn& turn) {
    return turn.role != Role::kUser && !turn.message->tools.empty();
  });
  if (has_tools) effective.drop_thinking = false;
  if (effective.drop_thinking && options.thinking_mode == ThinkingMode::kThinking) {
    DropEarlierDeveloperTurns(&turns);
    DropEarlierDeveloperTurns(&context);
  }
  return Renderer(std::move(turns), prompts, effective)
      .Render(/*first_turn=*/context.size(), /*with_bos=*/options.context.empty());
}

std::string PromptText(std::span<const TextSegment> segments) {
  std::string text;
  for (const TextSegment& segment : segments) text.append(segment.text);
  return text;
}

}  // namespace baton::router
