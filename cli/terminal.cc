#include "cli/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "router/tokenizer/utf8.h"

namespace baton::cli {
namespace {

constexpr auto kQuiet = std::chrono::seconds(1);  // what is over by then needs no bar
constexpr auto kRedraw = std::chrono::milliseconds(100);

const char* Code(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kRed:
      return "\033[31m";
    case Style::kGreen:
      return "\033[32m";
    case Style::kYellow:
      return "\033[33m";
  }
  return "";
}

// In characters: continuation bytes of UTF-8 take no column.
size_t Width(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

bool LooksNumeric(absl::string_view cell) {
  return !cell.empty() && (absl::ascii_isdigit(cell[0]) || cell[0] == '-' || cell[0] == '+');
}

std::string Padded(absl::string_view cell, size_t width, bool right) {
  const std::string spaces(width - std::min(width, Width(cell)), ' ');
  return right ? absl::StrCat(spaces, cell) : absl::StrCat(cell, spaces);
}

}  // namespace

bool IsTerminal(int fd) { return isatty(fd) == 1; }

bool UsesColour(int fd) {
  if (!IsTerminal(fd)) return false;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return term == nullptr || absl::string_view(term) != "dumb";
}

int TerminalColumns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string Harmless(absl::string_view text) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const router::Utf8Unit unit = router::NextUtf8({text.data(), text.size()}, at);
    const char32_t c = unit.code_point;
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c <= 0x9f);
    if (unit.kind == router::Utf8Unit::Kind::kValid && !control) {
      absl::StrAppend(&kept, text.substr(at, unit.bytes));
    }
    at += unit.bytes;
  }
  return kept;
}

std::string HarmlessName(absl::string_view text) {
  constexpr size_t kShown = 80;
  const std::string kept = absl::StrReplaceAll(Harmless(text), {{"\n", " "}, {"\t", " "}});
  if (Width(kept) <= kShown) return kept;
  size_t end = 0;
  for (size_t i = 1; i < kShown; ++i) end += router::NextUtf8(kept, end).bytes;
  return absl::StrCat(kept.substr(0, end), "…");
}

std::string Styled(absl::string_view text, Style style, bool colour) {
  if (!colour || style == Style::kPlain) return std::string(text);
  return absl::StrCat(Code(style), text, "\033[0m");
}

Table::Table(std::vector<std::string> headings) { rows_.push_back(std::move(headings)); }

void Table::AddRow(std::vector<std::string> cells) {
  BATON_CHECK(cells.size() == rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(bool colour) const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const std::string& cell = rows_[row][column];
      widths[column] = std::max(widths[column], Width(cell));
      if (row > 0 && !cell.empty() && !LooksNumeric(cell)) numeric[column] = false;
    }
  }
  std::string text;
  for (size_t row = 0; row < rows_.size(); ++row) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      if (column > 0) line += "  ";
      line += Padded(rows_[row][column], widths[column], numeric[column]);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, Styled(line, row == 0 ? Style::kBold : Style::kPlain, colour), "\n");
  }
  return text;
}

std::string ProgressLine(absl::string_view label, absl::string_view unit, int64_t done,
                         int64_t total, std::chrono::duration<double> elapsed, int columns) {
  if (unit.empty()) return absl::StrCat(label, "  ", HumanDuration(elapsed));
  const double rate = elapsed.count() > 0 ? done / elapsed.count() : 0;
  std::string figures = total > 0 ? absl::StrFormat("%d/%d %s  %.1f/s", done, total, unit, rate)
                                  : absl::StrFormat("%d %s  %.1f/s", done, unit, rate);
  if (total > 0 && rate > 0 && done < total) {
    const std::chrono::duration<double> left(std::ceil((total - done) / rate));
    absl::StrAppend(&figures, "  ETA ", HumanDuration(left));
  }
  std::string bar;
  const int room = std::min(30, columns - static_cast<int>(Width(label) + Width(figures)) - 6);
  if (total > 0 && room >= 5) {
    const auto filled = static_cast<size_t>(std::clamp(double(done) / total, 0.0, 1.0) * room);
    bar = absl::StrCat("[", std::string(filled, '#'), std::string(room - filled, '-'), "]  ");
  }
  return absl::StrCat(label, "  ", bar, figures).substr(0, std::max(0, columns));
}

ProgressBar::ProgressBar(std::string label, std::string unit, int64_t total)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      shown_(IsTerminal(kStderr)) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Update(int64_t done) {
  const Clock::time_point now = Clock::now();
  if (!shown_ || now - started_ < kQuiet || now - drawn_ < kRedraw) return;
  drawn_ = now;
  visible_ = true;
  // The last column stays free: some terminals wrap when it is written.
  std::cerr << "\r\033[K"
            << ProgressLine(label_, unit_, done, total_, now - started_,
                            TerminalColumns(kStderr) - 1)
            << std::flush;
}

void ProgressBar::Clear() {
  if (visible_) std::cerr << "\r\033[K" << std::flush;
  visible_ = false;
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  const int digits = unit > 0 && std::abs(bytes) < 99.5 ? (std::abs(bytes) < 9.95 ? 2 : 1) : 0;
  return absl::StrFormat("%.*f %s", digits, bytes, kUnits[unit]);
}

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string HumanDuration(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  if (seconds < 1e-3) return absl::StrFormat("%.0f µs", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.2f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
}

}  // namespace baton::cli
