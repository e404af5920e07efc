// Any text as a model's answer. The first byte chooses options, the second how the text is cut;
// '@' stands for the DSML token. What comes out must not depend on the cuts, arguments are JSON
// objects, and without markup to find nothing changes.

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "router/chat/json_text.h"
#include "router/chat/output_parser.h"
#include "router/tokenizer/utf8.h"

using namespace baton::router;  // NOLINT(google-build-using-namespace)

namespace {

ParsedOutput Parse(std::string_view text, size_t piece, OutputParser::Options options) {
  OutputParser parser(options);
  ParsedOutput output;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    for (const OutputDelta& delta : parser.Push(text.substr(0, piece))) output.Add(delta);
  }
  for (const OutputDelta& delta : parser.Finish(OutputParser::EndedBy::kModel)) output.Add(delta);
  BATON_CHECK(parser.has_tool_calls() == !output.tool_calls.empty());
  return output;
}

void CheckSame(const ParsedOutput& a, const ParsedOutput& b) {
  BATON_CHECK(a.reasoning == b.reasoning);
  BATON_CHECK(a.content == b.content);
  BATON_CHECK(a.tool_calls.size() == b.tool_calls.size());
  for (size_t i = 0; i < a.tool_calls.size(); ++i) {
    BATON_CHECK(a.tool_calls[i].name == b.tool_calls[i].name);
    BATON_CHECK(a.tool_calls[i].arguments == b.tool_calls[i].arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const OutputParser::Options options = {.starts_in_reasoning = (data[0] & 1) != 0,
                                         .finds_tool_calls = (data[0] & 2) != 0};
  const size_t piece = 1 + data[1] % 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string text = absl::StrReplaceAll(SanitizeUtf8(bytes), {{"@", "｜DSML｜"}});
  const ParsedOutput whole = Parse(text, std::max<size_t>(1, text.size()), options);
  CheckSame(whole, Parse(text, piece, options));

  for (const ToolCall& call : whole.tool_calls) {
    // Duplicate parameters are the model's; only the form is ours.
    const auto json = nlohmann::ordered_json::parse(call.arguments, nullptr, false);
    BATON_CHECK(json.is_object()) << call.arguments;
  }
  if (!options.starts_in_reasoning && !options.finds_tool_calls) {
    BATON_CHECK(whole.content == text && whole.reasoning.empty());
  }
  return 0;
}
