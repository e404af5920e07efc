#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/config.h"

// One option of a ConfigParser: a field, how text becomes its value, and what is accepted. Knows
// nothing of flags and files.

namespace baton {

class BoundOption final : public ConfigOption {
 public:
  BoundOption(std::string name, std::string heading, ConfigField field, std::string help)
      : name_(std::move(name)),
        heading_(std::move(heading)),
        help_(std::move(help)),
        field_(field),
        default_(Text()) {}

  ConfigOption& Range(double low, double high) override;
  ConfigOption& MultipleOf(int64_t divisor) override;
  ConfigOption& OneOf(std::vector<std::string> values) override;
  ConfigOption& Format(std::string expected, bool (*matches)(const std::string& text)) override;
  ConfigOption& Required() override;
  ConfigOption& Unit(std::string unit) override;

  // Replaces the field's value. INVALID_ARGUMENT names the bad text and what is accepted, not the
  // option: the caller knows where it stood. More than one text only for a list, whose texts are
  // split at commas.
  absl::Status Assign(const std::vector<std::string>& texts);

  // The field's present value, as Assign would accept it.
  std::string Text() const;
  // "a whole number, 128 to 4096, in tokens"
  std::string Accepted() const;
  // For --help: what it is, default, limits and unit.
  std::string Description() const;
  // For --help: what stands for the value, e.g. INT.
  std::string Placeholder() const;

  const std::string& name() const { return name_; }
  const std::string& heading() const { return heading_; }
  const std::string& help() const { return help_; }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(field_); }
  bool is_switch() const { return std::holds_alternative<bool*>(field_); }
  bool missing() const { return required_ && !given_; }
  bool changed() const { return Text() != default_; }

 private:
  absl::Status AssignTo(std::string* field, const std::string& text) const;
  absl::Status AssignTo(bool* field, const std::string& text) const;
  absl::Status AssignTo(double* field, const std::string& text) const;
  absl::Status AssignTo(std::chrono::nanoseconds* field, const std::string& text) const;
  template <typename Integer>
  absl::Status AssignTo(Integer* field, const std::string& text) const;

  absl::Status Refuse(const std::string& text) const;
  bool InRange(double value) const;
  std::string Limits() const;  // "128 to 4096"; empty without limits

  const std::string name_;
  const std::string heading_;
  const std::string help_;
  const ConfigField field_;
  const std::string default_;
  std::optional<std::pair<double, double>> range_;  // of a duration in seconds
  int64_t divisor_ = 1;                             // of whole numbers
  std::vector<std::string> one_of_;
  std::string format_;                                  // what `matches_` accepts
  bool (*matches_)(const std::string& text) = nullptr;  // null: anything
  std::string unit_;
  bool required_ = false;
  bool given_ = false;  // a value, whether it was accepted or not
};

}  // namespace baton
