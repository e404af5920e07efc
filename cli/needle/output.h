#pragma once

#include <string>
#include <vector>

#include "cli/needle/grid.h"

// Results for people: functions of their input.

namespace baton::cli {

// A heat map of each subject for the terminal, then the needles that were missed, or that none was
// if that was to be explained.
std::string TerminalReport(const std::vector<SubjectResult>& results, bool colour);

// By depth and length, of one subject, as an SVG document.
std::string HeatMapSvg(const SubjectResult& result);
// By subject and length.
std::string FoundSvg(const std::vector<SubjectResult>& results);
// Overlap of the selection with FP32's by length and subject, or by layer where there is only one
// subject. Empty when nothing was explained.
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
// A page in Markdown. It shows found.svg, overlap.svg unless that is empty, and heat-N.svg, from 1,
// of each subject that has one.
std::string MarkdownReport(const ReportInput& input);
// The first subject, and each that missed a needle.
bool HasHeatMap(const std::vector<SubjectResult>& results, size_t i);

}  // namespace baton::cli
