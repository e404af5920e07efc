#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/chat/output_parser.h"
#include "router/dispatch/generation_events.h"
#include "router/tokenizer/detokenizer.h"
#include "router/tokenizer/stop_strings.h"
#include "router/tokenizer/tokenizer.h"

namespace baton::router {

struct TextPipelineSpec {
  const Tokenizer* tokenizer = nullptr;
  std::vector<std::string> stop = {};
  std::optional<OutputParser::Options> chat = {};  // unset: all text is text
  std::vector<int32_t> keep_ids = {};              // special tokens that the chat parser has to see
};

// Token ids of one attempt -> detokenizer -> stop strings -> chat parser -> pieces of the answer.
// Stop strings apply to the model's text as it is written, reasoning included. Log-probabilities
// follow the text: those of a token come out when no stop string can take its beginning back. One
// thread at a time.
class TextPipeline {
 public:
  // InvalidArgument for an empty stop string.
  static absl::StatusOr<std::unique_ptr<TextPipeline>> Create(const TextPipelineSpec& spec);

  // Appends what `id` makes certain to `delta`. False when a stop string is complete: it and what
  // follows are left out.
  bool Push(int32_t id, GenerationDelta* delta) { return Push(id, std::nullopt, delta); }
  bool Push(int32_t id, std::optional<TokenLogprobs> logprobs, GenerationDelta* delta);

  // Appends what was held back: the sequence has ended, by itself or by its limit of tokens unless
  // a stop string did it.
  void Finish(OutputParser::EndedBy by, GenerationDelta* delta);

  // The stop string that ended the text; empty if none did.
  const std::string& matched_stop() const { return matched_stop_; }
  // There are calls, and the last one, too, is whole.
  bool has_whole_tool_calls() const {
    return parser_ && parser_->has_tool_calls() && !parser_->in_tool_call();
  }

 private:
  TextPipeline(const TextPipelineSpec& spec, StopStringMatcher stop);

  struct WaitingToken {
    size_t begin = 0;  // bytes of the model's text before it
    TokenLogprobs logprobs;
  };

  void AppendCertain(std::string_view text, GenerationDelta* delta);
  void AppendText(std::string_view text, GenerationDelta* delta);

  const std::vector<std::string> stop_strings_;
  Detokenizer detokenizer_;
  StopStringMatcher stop_;
  std::optional<OutputParser> parser_;
  std::string matched_stop_;

  size_t read_ = 0;                   // bytes of the model's text that have come
  size_t certain_ = 0;                // of those, that no stop string can take back
  size_t characters_ = 0;             // in those that were appended
  std::deque<WaitingToken> waiting_;  // that begin behind what is certain
};

}  // namespace baton::router
