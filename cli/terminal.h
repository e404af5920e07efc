#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// What people see: colours, tables, progress. All of it becomes plain text when nobody watches.

namespace baton::cli {

constexpr int kStdin = 0, kStdout = 1, kStderr = 2;

bool IsTerminal(int fd);
// A terminal, and neither NO_COLOR (no-color.org) nor TERM=dumb asks for plain text.
bool UsesColour(int fd);
int TerminalColumns(int fd);  // 80 when it is no terminal

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow };
// `text` in that style; unchanged without colour.
std::string Styled(absl::string_view text, Style style, bool colour);

// `text` without what a terminal would take for commands, which comes from servers and models too:
// no control characters but line feeds and tabs, in no encoding, and nothing that is not UTF-8.
std::string Harmless(absl::string_view text);
// The same for what others call something: one line, of which 80 characters are shown.
std::string HarmlessName(absl::string_view text);

// Columns under headings; cells that look like numbers are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void AddRow(std::vector<std::string> cells);  // as many as headings
  // Lines, each ended. Cells may hold UTF-8, no styles.
  std::string ToString(bool colour = false) const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

// "label  [#####-----]  42/100 requests  12.3/s  ETA 5 s", at most `columns` wide. `total` 0: not
// known, without bar and ETA. `unit` empty: there is nothing to count, only time to pass.
std::string ProgressLine(absl::string_view label, absl::string_view unit, int64_t done,
                         int64_t total, std::chrono::duration<double> elapsed, int columns);

// A line on stderr that is drawn over itself: only on a terminal, from the first second on, at most
// ten times a second. One thread at a time.
class ProgressBar {
 public:
  ProgressBar(std::string label, std::string unit, int64_t total);
  ~ProgressBar();  // Clear
  void Update(int64_t done);
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string label_;
  const std::string unit_;
  const int64_t total_;
  const bool shown_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_{};
  bool visible_ = false;
};

// "1.2 GB", "340 kB", "12 B": powers of 1000.
std::string HumanBytes(double bytes);
// "1 worker", "2 workers".
std::string Counted(int64_t count, absl::string_view noun);
// "850 µs", "12.3 ms", "4.56 s", "2m05s".
std::string HumanDuration(std::chrono::duration<double> duration);

}  // namespace baton::cli
