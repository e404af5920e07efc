#include "common/config_option.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

using std::chrono::nanoseconds;

std::string DurationText(double seconds) { return absl::FormatDuration(absl::Seconds(seconds)); }

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

ConfigOption& BoundOption::Range(double low, double high) {
  range_ = {low, high};
  return *this;
}

ConfigOption& BoundOption::MultipleOf(int64_t divisor) {
  divisor_ = divisor;
  return *this;
}

ConfigOption& BoundOption::OneOf(std::vector<std::string> values) {
  one_of_ = std::move(values);
  return *this;
}

ConfigOption& BoundOption::Format(std::string expected, bool (*matches)(const std::string& text)) {
  format_ = std::move(expected);
  matches_ = matches;
  return *this;
}

ConfigOption& BoundOption::Required() {
  required_ = true;
  return *this;
}

ConfigOption& BoundOption::Unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}

absl::Status BoundOption::Assign(const std::vector<std::string>& texts) {
  // An empty text gives nothing: so does a shell for a variable that is not set.
  given_ = std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
    return !absl::StripAsciiWhitespace(text).empty();
  });
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&field_)) {
    std::vector<std::string> items;
    for (const std::string& text : texts) {
      if (absl::StripAsciiWhitespace(text).empty()) continue;  // a list of nothing
      for (absl::string_view item : absl::StrSplit(text, ',')) {
        item = absl::StripAsciiWhitespace(item);
        if (item.empty()) return Refuse(text);
        BATON_RETURN_IF_ERROR(AssignTo(&items.emplace_back(), std::string(item)));
      }
    }
    **list = std::move(items);
  } else {
    BATON_CHECK(texts.size() == 1) << name_;
    BATON_RETURN_IF_ERROR(
        std::visit(Overloaded{[](std::vector<std::string>*) { return absl::OkStatus(); },
                              [&](auto* field) { return AssignTo(field, texts[0]); }},
                   field_));
  }
  return absl::OkStatus();
}

absl::Status BoundOption::AssignTo(std::string* field, const std::string& text) const {
  if (!one_of_.empty() && std::find(one_of_.begin(), one_of_.end(), text) == one_of_.end()) {
    return Refuse(text);
  }
  if (matches_ != nullptr && !matches_(text)) return Refuse(text);
  *field = text;
  return absl::OkStatus();
}

absl::Status BoundOption::AssignTo(bool* field, const std::string& text) const {
  return absl::SimpleAtob(text, field) ? absl::OkStatus() : Refuse(text);
}

absl::Status BoundOption::AssignTo(double* field, const std::string& text) const {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || !InRange(value)) {
    return Refuse(text);
  }
  *field = value;
  return absl::OkStatus();
}

absl::Status BoundOption::AssignTo(nanoseconds* field, const std::string& text) const {
  absl::Duration value;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds) && std::isfinite(seconds)) {
    value = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &value)) {
    return Refuse(text);
  }
  // A century is where nanoseconds would overflow before long.
  if (value < absl::ZeroDuration() || value > absl::Hours(24 * 365 * 100) ||
      !InRange(absl::ToDoubleSeconds(value))) {
    return Refuse(text);
  }
  *field = absl::ToChronoNanoseconds(value);
  return absl::OkStatus();
}

template <typename Integer>
absl::Status BoundOption::AssignTo(Integer* field, const std::string& text) const {
  Integer value = 0;
  if (!absl::SimpleAtoi(text, &value) || !InRange(static_cast<double>(value)) ||
      value % divisor_ != 0) {
    return Refuse(text);
  }
  *field = value;
  return absl::OkStatus();
}

absl::Status BoundOption::Refuse(const std::string& text) const {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not accepted; expected ", Accepted()));
}

bool BoundOption::InRange(double value) const {
  return !range_.has_value() || (value >= range_->first && value <= range_->second);
}

std::string BoundOption::Text() const {
  return std::visit(
      Overloaded{[](std::string* field) { return *field; },
                 [](bool* field) { return std::string(*field ? "true" : "false"); },
                 [](nanoseconds* field) { return absl::FormatDuration(absl::FromChrono(*field)); },
                 [](std::vector<std::string>* field) { return absl::StrJoin(*field, ","); },
                 [](auto* field) { return absl::StrCat(*field); }},
      field_);
}

std::string BoundOption::Limits() const {
  if (!one_of_.empty()) return absl::StrJoin(one_of_, ", ");
  if (!range_.has_value()) return "";
  if (std::holds_alternative<nanoseconds*>(field_)) {
    return absl::StrCat(DurationText(range_->first), " to ", DurationText(range_->second));
  }
  const std::string range = absl::StrFormat("%.15g to %.15g", range_->first, range_->second);
  return divisor_ == 1 ? range : absl::StrCat(range, ", a multiple of ", divisor_);
}

std::string BoundOption::Accepted() const {
  if (!one_of_.empty()) return absl::StrCat("one of ", Limits());
  if (!format_.empty()) return absl::StrCat(is_list() ? "a list of " : "", format_);
  std::string accepted = std::visit(
      Overloaded{[](std::string*) { return "text"; }, [](bool*) { return "true or false"; },
                 [](double*) { return "a number"; },
                 [](nanoseconds*) { return "a duration such as 250ms, 5s, 2m or 1h"; },
                 [](std::vector<std::string>*) { return "a list"; },
                 [](auto*) { return "a whole number"; }},
      field_);
  if (range_.has_value()) absl::StrAppend(&accepted, ", ", Limits());
  if (!unit_.empty()) absl::StrAppend(&accepted, ", in ", unit_);
  return accepted;
}

std::string BoundOption::Description() const {
  std::vector<std::string> notes;
  if (required_) notes.push_back("required");
  if (!required_ && !default_.empty()) notes.push_back(absl::StrCat("default ", default_));
  if (const std::string limits = Limits(); !limits.empty()) notes.push_back(limits);
  if (!unit_.empty()) notes.push_back(absl::StrCat("in ", unit_));
  return notes.empty() ? help_ : absl::StrCat(help_, " [", absl::StrJoin(notes, "; "), "]");
}

std::string BoundOption::Placeholder() const {
  return std::visit(
      Overloaded{[](std::string*) { return "TEXT"; }, [](bool*) { return "[=BOOL]"; },
                 [](double*) { return "NUMBER"; }, [](nanoseconds*) { return "DURATION"; },
                 [](std::vector<std::string>*) { return "TEXT,..."; }, [](auto*) { return "INT"; }},
      field_);
}

}  // namespace baton
