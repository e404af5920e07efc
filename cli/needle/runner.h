#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/needle/grid.h"
#include "cli/needle/subject.h"

namespace baton::cli {

// One thing to be asked, not started yet: at most one runs at a time.
struct SubjectSpec {
  std::string name;
  std::vector<std::string> flags;  // of its workers, for the record
  std::function<absl::StatusOr<std::unique_ptr<Subject>>()> start;
  // The engine that explains what a cluster or endpoint answered; null: nobody does, or the subject
  // itself is an engine.
  std::function<absl::StatusOr<std::unique_ptr<Subject>>()> start_explainer;
};

struct RunnerOptions {
  const TextMeter* meter = nullptr;
  const router::Tokenizer* tokenizer = nullptr;  // null: no explanations
  // After each, of the subject of that name.
  std::function<void(const std::string& subject, const CellResult& cell)> on_cell;
  std::function<bool()> cancelled;
};

// Asks every cell, up to the first that fails; what was answered is in `result` in any case.
// CANCELLED when interrupted; other errors are those of the subject.
absl::Status RunSubject(const SubjectSpec& spec, const std::vector<Cell>& cells,
                        const RunnerOptions& options, SubjectResult& result);

}  // namespace baton::cli
