#include "cli/top/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton::cli {
namespace {

// `text` begins behind '{'; what is left begins behind '}'. nullopt: not closed, or malformed.
std::optional<Labels> TakeLabels(absl::string_view& text) {
  Labels labels;
  while (true) {
    while (!text.empty() && (text[0] == ',' || text[0] == ' ')) text.remove_prefix(1);
    if (text.empty()) return std::nullopt;
    if (text[0] == '}') {
      text.remove_prefix(1);
      return labels;
    }
    const size_t equals = text.find("=\"");
    if (equals == absl::string_view::npos) return std::nullopt;
    std::string& value = labels[std::string(text.substr(0, equals))];
    text.remove_prefix(equals + 2);
    while (!text.empty() && text[0] != '"') {
      if (text[0] == '\\' && text.size() > 1) {
        text.remove_prefix(1);
        value += text[0] == 'n' ? '\n' : text[0];
      } else {
        value += text[0];
      }
      text.remove_prefix(1);
    }
    if (text.empty()) return std::nullopt;
    text.remove_prefix(1);
  }
}

bool Carries(const Labels& labels, const Labels& with) {
  return std::all_of(with.begin(), with.end(), [&](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second;
  });
}

}  // namespace

void Histogram::Add(const Histogram& other) {
  for (const auto& [bound, count] : other.cumulative_) cumulative_[bound] += count;
}

Histogram Histogram::Since(const Histogram& before) const {
  if (before.count() > count()) return *this;
  std::map<double, double> grown = cumulative_;
  for (auto& [bound, count] : grown) {
    if (const auto old = before.cumulative_.find(bound); old != before.cumulative_.end()) {
      count -= old->second;
    }
  }
  return Histogram(std::move(grown));
}

double Histogram::Quantile(double q) const {
  if (!(count() > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double rank = q * count();
  double low = 0, below = 0;
  for (const auto& [bound, cumulative] : cumulative_) {
    if (cumulative >= rank && cumulative > below) {
      if (std::isinf(bound)) return low;
      return low + (bound - low) * (rank - below) / (cumulative - below);
    }
    if (std::isfinite(bound)) low = bound;
    below = cumulative;
  }
  return low;
}

absl::StatusOr<MetricsText> MetricsText::Parse(absl::string_view text) {
  MetricsText metrics;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view rest = absl::StripAsciiWhitespace(line);
    if (rest.empty() || rest[0] == '#') continue;
    const std::string name(rest.substr(0, rest.find_first_of("{ ")));
    rest.remove_prefix(name.size());
    std::optional<Labels> labels = Labels();
    if (!rest.empty() && rest[0] == '{') {
      rest.remove_prefix(1);
      labels = TakeLabels(rest);
    }
    rest = absl::StripAsciiWhitespace(rest);
    double value = 0;  // a timestamp may follow it
    if (name.empty() || !labels || !absl::SimpleAtod(rest.substr(0, rest.find(' ')), &value)) {
      return absl::InvalidArgumentError(absl::StrCat("no sample of a metric: ", line));
    }
    metrics.samples_[name].emplace_back(*std::move(labels), value);
  }
  return metrics;
}

const std::vector<std::pair<Labels, double>>& MetricsText::Samples(const std::string& name) const {
  static const std::vector<std::pair<Labels, double>> kNone;
  const auto found = samples_.find(name);
  return found == samples_.end() ? kNone : found->second;
}

double MetricsText::Sum(const std::string& name, const Labels& with) const {
  double sum = 0;
  for (const auto& [labels, value] : Samples(name)) {
    if (Carries(labels, with)) sum += value;
  }
  return sum;
}

Histogram MetricsText::HistogramOf(const std::string& name, const Labels& with) const {
  std::map<double, double> cumulative;
  for (const auto& [labels, value] : Samples(absl::StrCat(name, "_bucket"))) {
    const auto bound = labels.find("le");
    double upper = 0;
    if (bound == labels.end() || !absl::SimpleAtod(bound->second, &upper)) continue;
    if (Carries(labels, with)) cumulative[upper] += value;
  }
  return Histogram(std::move(cumulative));
}

}  // namespace baton::cli
