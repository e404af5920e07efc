#include "cli/needle/report_folder.h"

#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/files.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

absl::StatusOr<MemoryPoint> MemoryOf(const Reply& reply) try {
  return MemoryPoint{.tokens = reply.prompt_tokens,
                     .peak_bytes = reply.report.at("peak_bytes").get<int64_t>(),
                     .cache_bytes = reply.report.at("cache_bytes").get<int64_t>()};
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(absl::StrCat("the engine's answer has no memory: ", error.what()));
}

}  // namespace

std::string TypedCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words = absl::StrSplit(text, '\0', absl::SkipEmpty());
  if (words.empty()) return "baton needle";
  words[0] = "baton";
  const std::string folder = OwnFolder().string() + "/";
  for (std::string& word : words) {
    word = absl::StrReplaceAll(word, {{folder, ""}});
    if (word.find(' ') != std::string::npos) word = absl::StrCat("'", word, "'");
  }
  return absl::StrReplaceAll(absl::StrJoin(words, " \\\n  "),
                             {{"baton \\\n  needle", "baton needle"}});
}

absl::StatusOr<std::vector<MemoryPoint>> MeasureMemory(const Lineup& lineup,
                                                       const std::vector<int64_t>& lengths,
                                                       const router::Tokenizer& tokenizer) {
  const TextMeter meter(&tokenizer);
  std::vector<MemoryPoint> points;
  for (const int64_t length : lengths) {
    BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> engine, lineup.StartPlainEngine());
    BATON_ASSIGN_OR_RETURN(const Conversation conversation,
                           MakeConversation({.tokens = length, .depth = 50}, meter));
    BATON_ASSIGN_OR_RETURN(const Reply reply,
                           engine->Ask({conversation.turns[0].text}, conversation));
    BATON_ASSIGN_OR_RETURN(points.emplace_back(), MemoryOf(reply));
  }
  return points;
}

absl::Status WriteReportFolder(const std::filesystem::path& folder, const ReportInput& input,
                               const std::string& json) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
  }
  const std::vector<SubjectResult>& results = input.results;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!HasHeatMap(results, i)) continue;
    BATON_RETURN_IF_ERROR(
        WriteFile(folder / absl::StrCat("heat-", i + 1, ".svg"), HeatMapSvg(results[i])));
  }
  BATON_RETURN_IF_ERROR(WriteFile(folder / "found.svg", FoundSvg(results)));
  const std::string overlap = OverlapSvg(results);
  if (!overlap.empty()) {
    BATON_RETURN_IF_ERROR(WriteFile(folder / "overlap.svg", overlap));
  }
  BATON_RETURN_IF_ERROR(WriteFile(folder / "needle.json", json));
  return WriteFile(folder / "README.md", MarkdownReport(input));
}

}  // namespace baton::cli
