#include "router/chat/output_parser.h"

#include <algorithm>
#include <utility>

#include "router/chat/json_text.h"
#include "router/chat/markup.h"

namespace baton::router {
namespace {

using Kind = OutputDelta::Kind;

constexpr std::string_view kBlockOpen = "<｜DSML｜tool_calls>";
constexpr std::string_view kBlockClose = "</｜DSML｜tool_calls>";
constexpr std::string_view kInvokeOpen = "<｜DSML｜invoke name=\"";
constexpr std::string_view kInvokeClose = "</｜DSML｜invoke>";
constexpr std::string_view kParameterOpen = "<｜DSML｜parameter name=\"";
constexpr std::string_view kParameterClose = "</｜DSML｜parameter>";
constexpr std::string_view kHeaderEnd = "\">";
constexpr std::string_view kIsString = "\" string=\"true";
constexpr std::string_view kIsNotString = "\" string=\"false";

// An opening tag that does not end within this many bytes is no tag.
constexpr size_t kMaxHeaderBytes = 4096;

// Length of the longest end of `text` that is a proper beginning of `marker`.
size_t PartialMatch(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == marker.substr(0, n)) return n;
  }
  return 0;
}

bool HoldsMarkup(std::string_view text) { return text.find('<') != std::string_view::npos; }

}  // namespace

OutputParser::OutputParser(Options options)
    : options_(options),
      state_(options.starts_in_reasoning ? State::kReasoning : State::kContent) {}

std::vector<OutputDelta> OutputParser::Push(std::string_view text) {
  pending_.append(text);
  while (!pending_.empty() && Step()) {
  }
  return std::exchange(out_, {});
}

std::vector<OutputDelta> OutputParser::Finish(EndedBy by) {
  is_finished_ = true;
  while (!pending_.empty() && Step()) {
  }
  if (by == EndedBy::kModel) {
    if (state_ == State::kValue) CloseParameter();
    if (state_ == State::kInvoke) CloseCall();
  } else if (state_ == State::kValue && value_kind_ == ValueKind::kJson) {
    Emit(Kind::kToolCallArguments, value_);
  }
  if (!has_tool_calls()) {
    Emit(state_ == State::kReasoning ? Kind::kReasoning : Kind::kContent, newlines_);
  }
  EmitUnclaimed();
  return std::exchange(out_, {});
}

bool OutputParser::Step() {
  switch (state_) {
    case State::kReasoning:
    case State::kContent:
      return StepText();
    case State::kBlock:
      return StepBlock();
    case State::kInvoke:
      return StepInvoke();
    case State::kValue:
      return StepValue();
  }
  return false;
}

bool OutputParser::StepText() {
  const Kind kind = state_ == State::kReasoning ? Kind::kReasoning : Kind::kContent;
  const std::string_view think_end = state_ == State::kReasoning ? kThinkEndToken : "";
  const std::string_view block_open = options_.finds_tool_calls ? kBlockOpen : "";
  Taken taken = TakeUntil({think_end, block_open});
  std::string text = std::exchange(newlines_, {}) + taken.text;
  if (options_.finds_tool_calls && taken.marker != kThinkEndToken) {
    while (newlines_.size() < 2 && text.ends_with('\n')) {
      text.pop_back();
      newlines_.push_back('\n');
    }
  }
  Emit(kind, text);
  if (taken.marker.empty()) return false;
  if (taken.marker == kBlockOpen) {
    unclaimed_ = std::exchange(newlines_, {}) + std::string(kBlockOpen);
    state_ = State::kBlock;
  } else {
    state_ = State::kContent;
  }
  return true;
}

bool OutputParser::StepBlock() {
  if (TakeSpaces()) return true;
  if (pending_.starts_with(kBlockClose)) {
    if (HoldsMarkup(unclaimed_)) unclaimed_.append(kBlockClose);  // a block without any call
    EmitUnclaimed();
    pending_.erase(0, kBlockClose.size());
    state_ = State::kContent;
    return true;
  }
  if (pending_.starts_with(kInvokeOpen)) {
    const size_t end = pending_.find(kHeaderEnd, kInvokeOpen.size());
    if (end < kMaxHeaderBytes) {
      OpenCall(std::string_view(pending_).substr(kInvokeOpen.size(), end - kInvokeOpen.size()));
      pending_.erase(0, end + kHeaderEnd.size());
      return true;
    }
    if (MayEndHeader(end)) return false;
  } else if (MayBecome({kBlockClose, kInvokeOpen})) {
    return false;
  }
  return TakeUnexpected();
}

bool OutputParser::StepInvoke() {
  if (TakeSpaces()) return true;
  if (pending_.starts_with(kInvokeClose)) {
    pending_.erase(0, kInvokeClose.size());
    CloseCall();
    return true;
  }
  if (pending_.starts_with(kBlockClose) || pending_.starts_with(kInvokeOpen)) {
    CloseCall();  // its closing tag is missing
    return true;
  }
  if (pending_.starts_with(kParameterOpen)) {
    const size_t end = pending_.find(kHeaderEnd, kParameterOpen.size());
    if (end < kMaxHeaderBytes) {
      OpenParameter(
          std::string_view(pending_).substr(kParameterOpen.size(), end - kParameterOpen.size()));
      pending_.erase(0, end + kHeaderEnd.size());
      return true;
    }
    if (MayEndHeader(end)) return false;
  } else if (MayBecome({kInvokeClose, kBlockClose, kInvokeOpen, kParameterOpen})) {
    return false;
  }
  return TakeUnexpected();
}

bool OutputParser::StepValue() {
  const Taken taken = TakeUntil({kParameterClose});
  if (value_kind_ == ValueKind::kString) {
    std::string escaped;
    AppendJsonEscaped(taken.text, &escaped);
    Emit(Kind::kToolCallArguments, escaped);
  } else {
    value_.append(taken.text);
  }
  if (taken.marker.empty()) return false;
  CloseParameter();
  return true;
}

// Takes the text before the first of `markers`, and that marker itself; without one, all text that
// cannot be part of one. Empty markers are ignored.
OutputParser::Taken OutputParser::TakeUntil(std::initializer_list<std::string_view> markers) {
  Taken taken;
  size_t end = std::string::npos;
  size_t held = 0;
  for (const std::string_view marker : markers) {
    if (marker.empty()) continue;
    const size_t found = pending_.find(marker);
    if (found < end) {
      end = found;
      taken.marker = marker;
    }
    held = std::max(held, PartialMatch(pending_, marker));
  }
  if (taken.marker.empty()) end = pending_.size() - (is_finished_ ? 0 : held);
  taken.text = pending_.substr(0, end);
  pending_.erase(0, end + taken.marker.size());
  return taken;
}

bool OutputParser::TakeSpaces() {
  const size_t end = std::min(pending_.find_first_not_of(" \t\r\n"), pending_.size());
  unclaimed_.append(pending_, 0, end);
  pending_.erase(0, end);
  return end > 0;
}

bool OutputParser::MayBecome(std::initializer_list<std::string_view> markers) const {
  return !is_finished_ && std::any_of(markers.begin(), markers.end(), [&](std::string_view marker) {
    return marker.starts_with(pending_);
  });
}

// Whether more text could still complete the opening tag at the front, whose end is not there yet.
bool OutputParser::MayEndHeader(size_t found) const {
  return !is_finished_ && found == std::string::npos && pending_.size() <= kMaxHeaderBytes;
}

// Text where a tag should be: content, together with what led up to it.
bool OutputParser::TakeUnexpected() {
  const size_t end = std::min(pending_.find_first_of("< \t\r\n", 1), pending_.size());
  Emit(Kind::kContent, std::exchange(unclaimed_, {}));
  Emit(Kind::kContent, std::string_view(pending_).substr(0, end));
  pending_.erase(0, end);
  return true;
}

// What is left of a block from which no call came; spaces between tags are no loss.
void OutputParser::EmitUnclaimed() {
  if (HoldsMarkup(unclaimed_)) Emit(Kind::kContent, unclaimed_);
  unclaimed_.clear();
}

void OutputParser::OpenCall(std::string_view name) {
  unclaimed_.clear();
  ++next_tool_call_;
  has_parameters_ = false;
  state_ = State::kInvoke;
  out_.push_back({Kind::kToolCallStart, std::string(name), next_tool_call_ - 1});
}

void OutputParser::CloseCall() {
  unclaimed_.clear();
  Emit(Kind::kToolCallArguments, has_parameters_ ? "}" : "{}");
  state_ = State::kBlock;
}

void OutputParser::OpenParameter(std::string_view header) {
  unclaimed_.clear();
  value_.clear();
  value_kind_ = ValueKind::kJson;
  if (header.ends_with(kIsString)) {
    value_kind_ = ValueKind::kString;
    header.remove_suffix(kIsString.size());
  } else if (header.ends_with(kIsNotString)) {
    header.remove_suffix(kIsNotString.size());
  }
  std::string text = std::exchange(has_parameters_, true) ? ", " : "{";
  text += JsonQuoted(header) + ": ";
  if (value_kind_ == ValueKind::kString) text += '"';
  Emit(Kind::kToolCallArguments, text);
  state_ = State::kValue;
}

void OutputParser::CloseParameter() {
  if (value_kind_ == ValueKind::kString) {
    Emit(Kind::kToolCallArguments, "\"");
  } else {
    Emit(Kind::kToolCallArguments, IsJson(value_) ? value_ : JsonQuoted(value_));
  }
  state_ = State::kInvoke;
}

void OutputParser::Emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int call = kind == Kind::kToolCallArguments ? next_tool_call_ - 1 : 0;
  if (!out_.empty() && out_.back().kind == kind && out_.back().tool_call == call) {
    out_.back().text.append(text);
  } else {
    out_.push_back({kind, std::string(text), call});
  }
}

void ParsedOutput::Add(const OutputDelta& delta) {
  switch (delta.kind) {
    case Kind::kReasoning:
      reasoning += delta.text;
      return;
    case Kind::kContent:
      content += delta.text;
      return;
    case Kind::kToolCallStart:
      tool_calls.push_back({.id = {}, .name = delta.text, .arguments = {}});
      return;
    case Kind::kToolCallArguments:
      tool_calls.at(delta.tool_call).arguments += delta.text;
      return;
  }
}

}  // namespace baton::router
