#include "router/dispatch/text_pipeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace baton::router {
namespace {

void Append(std::vector<OutputDelta> pieces, GenerationDelta* delta) {
  for (OutputDelta& piece : pieces) {
    switch (piece.kind) {
      case OutputDelta::Kind::kReasoning:
        delta->reasoning += piece.text;
        break;
      case OutputDelta::Kind::kContent:
        delta->text += piece.text;
        break;
      case OutputDelta::Kind::kToolCallStart:
        delta->tool_calls.push_back({.index = piece.tool_call,
                                     .id = absl::StrCat("call_", RequestId::Random().ToString()),
                                     .name = std::move(piece.text)});
        break;
      case OutputDelta::Kind::kToolCallArguments:
        if (delta->tool_calls.empty() || delta->tool_calls.back().index != piece.tool_call) {
          delta->tool_calls.push_back({.index = piece.tool_call});
        }
        delta->tool_calls.back().arguments += piece.text;
        break;
    }
  }
}

}  // namespace

TextPipeline::TextPipeline(const TextPipelineSpec& spec, StopStringMatcher stop)
    : stop_strings_(spec.stop),
      detokenizer_(spec.tokenizer, {.skip_special = true, .keep_ids = spec.keep_ids}),
      stop_(std::move(stop)) {
  if (spec.chat) parser_.emplace(*spec.chat);
}

absl::StatusOr<std::unique_ptr<TextPipeline>> TextPipeline::Create(const TextPipelineSpec& spec) {
  BATON_ASSIGN_OR_RETURN(StopStringMatcher stop, StopStringMatcher::Create(spec.stop));
  return std::unique_ptr<TextPipeline>(new TextPipeline(spec, std::move(stop)));
}

void TextPipeline::AppendText(const std::string& text, GenerationDelta* delta) {
  if (text.empty()) return;
  if (parser_) {
    Append(parser_->Push(text), delta);
  } else {
    delta->text += text;
  }
}

bool TextPipeline::Push(int32_t id, GenerationDelta* delta) {
  const StopStringMatcher::Output output = stop_.Push(detokenizer_.Push(id));
  AppendText(output.text, delta);
  if (output.match) matched_stop_ = stop_strings_[*output.match];
  return !output.match;
}

void TextPipeline::Finish(GenerationDelta* delta) {
  if (matched_stop_.empty()) {
    const StopStringMatcher::Output output = stop_.Push(detokenizer_.Flush());
    AppendText(output.text, delta);
    if (output.match) matched_stop_ = stop_strings_[*output.match];
    AppendText(stop_.Flush(), delta);
  }
  if (parser_) Append(parser_->Finish(), delta);
}

}  // namespace baton::router
