// Any bytes as the body of a request: an error in OpenAI's shape, or a request that can be rendered
// as a prompt.

#include "common/base/check.h"
#include "router/chat/json_text.h"
#include "router/chat/renderer.h"
#include "router/openai/request.h"

using namespace baton::router;  // NOLINT(google-build-using-namespace)

namespace {

void CheckOutcome(const std::variant<CompletionRequest, ApiError>& outcome) {
  if (const auto* error = std::get_if<ApiError>(&outcome)) {
    BATON_CHECK(error->http_status == 400) << error->http_status;
    BATON_CHECK(nlohmann::json::accept(ErrorJson(*error))) << ErrorJson(*error);
    return;
  }
  const GenerationRequest& request = std::get<CompletionRequest>(outcome).generation;
  const auto* chat = std::get_if<ChatInput>(&request.input);
  if (chat == nullptr) return;
  static const ChatPrompts prompts = {.reasoning_effort_max = "think hard\n",
                                      .tools_before_schemas = "tools:\n",
                                      .tools_after_schemas = "\nend of tools",
                                      .response_format = "answer as:\n"};
  for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
    const auto rendered =
        RenderPrompt(chat->messages, prompts,
                     {.thinking_mode = mode, .reasoning_effort = ReasoningEffort::kMax});
    BATON_CHECK(rendered.ok() || absl::IsInvalidArgument(rendered.status())) << rendered.status();
    if (rendered.ok()) BATON_CHECK(!PromptText(*rendered).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  CheckOutcome(ParseChatCompletion(body));
  CheckOutcome(ParseCompletion(body));
  if (const auto json = ParseJson(body); json.ok()) {
    const auto again = ParseJson(PythonJson(*json));
    BATON_CHECK(again.ok() && *again == *json) << PythonJson(*json);
  }
  return 0;
}
