#include "cli/needle/runner.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

// Ids of the passphrase as the answer spells it: at its beginning, without a space before it.
absl::StatusOr<Explanation> ExplainReply(const Reply& engine, const std::string& expected,
                                         bool served_found,
                                         const router::Tokenizer& tokenizer) try {
  Explanation explanation = Explain(engine.report, tokenizer.Encode(expected), served_found);
  explanation.engine_answer = engine.text;
  return explanation;
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(absl::StrCat("the engine's report explains nothing: ", error.what()));
}

class Run {
 public:
  Run(Subject& subject, Subject* explainer, const RunnerOptions& options)
      : subject_(subject), explainer_(explainer), options_(options) {}

  absl::StatusOr<CellResult> Ask(const Cell& cell) {
    BATON_ASSIGN_OR_RETURN(const Conversation conversation,
                           MakeConversation(cell, *options_.meter));
    CellResult result;
    result.cell = cell;
    result.position = conversation.sentence_begin;
    result.found = true;
    Messages messages;
    Reply reply;
    for (const Conversation::Turn& turn : conversation.turns) {
      messages.push_back(turn.text);
      BATON_ASSIGN_OR_RETURN(reply, subject_.Ask(messages, conversation));
      if (result.prompt_tokens == 0) result.prompt_tokens = reply.prompt_tokens;
      result.seconds += reply.seconds;
      result.handoff_bytes += reply.handoff_bytes;
      if (result.found) {
        result.expected = turn.answer;
        result.answer = reply.text;
        result.found = absl::StrContains(reply.text, turn.answer);
      }
      messages.push_back(reply.text);
    }
    messages.pop_back();
    if (options_.tokenizer == nullptr) return result;
    const std::string& expected = conversation.turns.back().answer;
    if (reply.report.contains("rows") && !reply.report["rows"].empty()) {
      BATON_ASSIGN_OR_RETURN(result.explanation,
                             ExplainReply(reply, expected, result.found, *options_.tokenizer));
    } else if (explainer_ != nullptr) {
      BATON_ASSIGN_OR_RETURN(const Reply explained, explainer_->Ask(messages, conversation));
      BATON_ASSIGN_OR_RETURN(result.explanation,
                             ExplainReply(explained, expected, result.found, *options_.tokenizer));
    }
    return result;
  }

 private:
  Subject& subject_;
  Subject* explainer_;
  const RunnerOptions& options_;
};

}  // namespace

absl::Status RunSubject(const SubjectSpec& spec, const std::vector<Cell>& cells,
                        const RunnerOptions& options, SubjectResult& result) {
  result = {.name = spec.name, .flags = spec.flags, .cells = {}};
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, spec.start());
  std::unique_ptr<Subject> explainer;
  if (spec.start_explainer) {
    BATON_ASSIGN_OR_RETURN(explainer, spec.start_explainer());
  }
  Run run(*subject, explainer.get(), options);
  for (const Cell& cell : cells) {
    if (options.cancelled && options.cancelled()) return absl::CancelledError("interrupted");
    absl::StatusOr<CellResult> item = run.Ask(cell);
    if (!item.ok()) {
      return absl::Status(item.status().code(), absl::StrCat(spec.name, ", ", cell.tokens,
                                                             " tokens: ", item.status().message()));
    }
    result.cells.push_back(*std::move(item));
    if (options.on_cell) options.on_cell(spec.name, result.cells.back());
  }
  return subject->Stop();
}

}  // namespace baton::cli
