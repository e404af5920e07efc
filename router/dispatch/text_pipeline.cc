#include "router/dispatch/text_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace baton::router {
namespace {

// Code points of well-formed UTF-8.
size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

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

// Cut where tokens begin, so that the parser says which are reasoning.
void TextPipeline::AppendCertain(std::string_view text, GenerationDelta* delta) {
  const size_t end = certain_ + text.size();
  while (!waiting_.empty() && waiting_.front().begin < end) {
    WaitingToken& token = waiting_.front();
    const std::string_view before = text.substr(0, token.begin - certain_);
    AppendText(before, delta);
    text.remove_prefix(before.size());
    certain_ = token.begin;
    delta->answer_tokens.push_back({.logprobs = std::move(token.logprobs),
                                    .text_offset = characters_,
                                    .is_reasoning = parser_ && parser_->in_reasoning()});
    waiting_.pop_front();
  }
  AppendText(text, delta);
  certain_ = end;
}

void TextPipeline::AppendText(std::string_view text, GenerationDelta* delta) {
  if (text.empty()) return;
  characters_ += CountCharacters(text);
  if (parser_) {
    Append(parser_->Push(text), delta);
  } else {
    delta->text += text;
  }
}

bool TextPipeline::Push(int32_t id, std::optional<TokenLogprobs> logprobs, GenerationDelta* delta) {
  size_t begin = 0;
  const std::string text = detokenizer_.Push(id, &begin);
  if (logprobs && detokenizer_.Shows(id)) {
    waiting_.push_back({.begin = read_ + begin, .logprobs = *std::move(logprobs)});
  }
  read_ += text.size();
  const StopStringMatcher::Output output = stop_.Push(text);
  AppendCertain(output.text, delta);
  if (output.match) matched_stop_ = stop_strings_[*output.match];
  return !output.match;
}

void TextPipeline::Finish(OutputParser::EndedBy by, GenerationDelta* delta) {
  if (matched_stop_.empty()) {
    const StopStringMatcher::Output output = stop_.Push(detokenizer_.Flush());
    AppendCertain(output.text, delta);
    if (output.match) matched_stop_ = stop_strings_[*output.match];
    AppendCertain(stop_.Flush(), delta);
  }
  if (!matched_stop_.empty()) by = OutputParser::EndedBy::kLimit;
  if (parser_) Append(parser_->Finish(by), delta);
}

}  // namespace baton::router
