#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "router/chat/message.h"

namespace baton::router {

// A piece of a model's answer, as it becomes known.
struct OutputDelta {
  enum class Kind {
    kReasoning,
    kContent,
    kToolCallStart,      // text: the function's name
    kToolCallArguments,  // text: the next stretch of the call's arguments, a JSON object in the end
  };
  Kind kind = Kind::kContent;
  std::string text;
  int tool_call = 0;  // tool call kinds: index of the call within the answer, from 0

  friend bool operator==(const OutputDelta&, const OutputDelta&) = default;
};

// Splits a model's text into reasoning, content and tool calls while it arrives. What comes out
// does not depend on how the text is cut into pieces. Malformed markup is no error: every call that
// was announced ends with arguments that are a JSON object, unless the answer was ended inside it,
// and text that fits nowhere becomes content; no text is dropped but well-formed markup and the
// newlines around it. One object per answer, one thread.
//
// The text is well-formed UTF-8, as a Detokenizer yields it; it must hold the control tokens
// "</think>" and "｜DSML｜" (Detokenizer's keep_ids), and no EOS.
class OutputParser {
 public:
  struct Options {
    bool starts_in_reasoning = false;  // the prompt ended with <think>
    bool finds_tool_calls = false;     // off: tool call markup is content like any other text
  };

  explicit OutputParser(Options options);

  std::vector<OutputDelta> Push(std::string_view text);

  enum class EndedBy {
    kModel,  // a call that it left open is closed
    kLimit,  // a stop string or a number of tokens: a call that is not complete must not look so
  };
  // Ends the answer: what was held back.
  std::vector<OutputDelta> Finish(EndedBy by);

  // The text so far does not end the reasoning.
  bool in_reasoning() const { return state_ == State::kReasoning; }
  // True once a tool call was announced.
  bool has_tool_calls() const { return next_tool_call_ > 0; }
  // The last call is not complete.
  bool in_tool_call() const { return state_ == State::kInvoke || state_ == State::kValue; }

 private:
  enum class State {
    kReasoning,
    kContent,
    kBlock,   // between calls, inside the tool call block
    kInvoke,  // between the parameters of a call
    kValue,   // inside a parameter
  };
  enum class ValueKind {
    kString,  // text as it is, JSON-quoted while it arrives
    kJson,    // kept until complete, passed on as it is if it is JSON, else as a string
  };
  struct Taken {
    std::string text;
    std::string_view marker;  // empty: none found yet
  };

  // Each consumes what it can from the front of pending_; false: more text is needed.
  bool Step();
  bool StepText();
  bool StepBlock();
  bool StepInvoke();
  bool StepValue();

  Taken TakeUntil(std::initializer_list<std::string_view> markers);
  bool TakeSpaces();
  bool MayBecome(std::initializer_list<std::string_view> markers) const;
  bool MayEndHeader(size_t found) const;
  bool TakeUnexpected();
  void EmitUnclaimed();
  void OpenCall(std::string_view name);
  void CloseCall();
  void OpenParameter(std::string_view header);
  void CloseParameter();
  void Emit(OutputDelta::Kind kind, std::string_view text);

  Options options_;
  State state_;
  std::string pending_;       // text not yet understood
  bool is_finished_ = false;  // no text follows pending_
  std::string newlines_;      // at most two, which a tool call block would swallow
  std::string unclaimed_;     // markup and spaces that become content if no call comes of them
  int next_tool_call_ = 0;
  bool has_parameters_ = false;
  ValueKind value_kind_ = ValueKind::kString;
  std::string value_;  // kJson
  std::vector<OutputDelta> out_;
};

// An answer put together from its deltas. Tool call ids are left to the caller.
struct ParsedOutput {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;

  void Add(const OutputDelta& delta);
};

}  // namespace baton::router
