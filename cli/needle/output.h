#pragma once

#include <string>
#include <vector>

#include "cli/needle/grid.h"

// Results for people: functions of their input.

namespace baton::cli {

// A heat map of each subject for the terminal, then the needles that were missed.
std::string TerminalReport(const std::vector<SubjectResult>& results, bool colour);

// The heat map of one subject as an SVG document.
std::string HeatMapSvg(const SubjectResult& result);

// Overlap of the selection with FP32's by length: a line for each subject, or for each layer where
// there is only one. Empty when nothing was explained.
std::string OverlapSvg(const std::vector<SubjectResult>& results);

// Memory of an engine in a process of its own, at its peak.
struct MemoryPoint {
  int64_t tokens = 0;
  int64_t peak_bytes = 0;
  int64_t cache_bytes = 0;  // of it
};

struct ReportInput {
  std::vector<SubjectResult> results;
  std::vector<MemoryPoint> memory;  // by length
  std::string command;              // that made it
};
// A page in Markdown that shows heat-N.svg (N from 0, a subject each) and overlap.svg beside it.
std::string MarkdownReport(const ReportInput& input);

}  // namespace baton::cli
