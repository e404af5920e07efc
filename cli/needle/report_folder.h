#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/needle/lineup.h"
#include "cli/needle/output.h"

// A report as a folder: a page of Markdown, its plots, and all results as JSON.

namespace baton::cli {

// This process's command line as it was typed, a flag a line, without the folder of the program.
std::string TypedCommand();

// The memory of the lineup's plain engine, one process a length.
absl::StatusOr<std::vector<MemoryPoint>> MeasureMemory(const Lineup& lineup,
                                                       const std::vector<int64_t>& lengths,
                                                       const router::Tokenizer& tokenizer);

// The folder is made if there is none. `json`: what becomes needle.json.
absl::Status WriteReportFolder(const std::filesystem::path& folder, const ReportInput& input,
                               const std::string& json);

}  // namespace baton::cli
