#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// A subcommand of `baton`, bound to options of its own. Its CLI::App is the one table of its flags:
// parsing, `baton X --help` and shell completion read nothing else.
struct Command {
  const CLI::App* app = nullptr;      // says whether it was chosen
  std::function<absl::Status()> run;  // after the arguments have been parsed
};

// What the process exits with.
enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

// Flags that contradict each other, or a value that only the command can judge: exits with
// kExitUsage, where any other error exits with kExitFailed.
absl::Status UsageError(absl::string_view message);
bool IsUsageError(const absl::Status& status);

// An option whose default is shown in --help.
template <typename Value>
CLI::Option* AddOption(CLI::App* command, const std::string& name, Value& value,
                       const std::string& help) {
  return command->add_option(name, value, help)->capture_default_str();
}

// A list: one item for each time the flag is given.
template <typename Value>
CLI::Option* AddList(CLI::App* command, const std::string& name, std::vector<Value>& values,
                     const std::string& help) {
  return command->add_option(name, values, help)->allow_extra_args(false);
}

// Limits, inclusive; an error names them, --help is left to the help text.
template <typename Value>
CLI::Validator InRange(Value low, Value high) {
  const CLI::Validator number(
      [](std::string& text) {
        double value = 0;
        const bool nan = absl::SimpleAtod(text, &value) && std::isnan(value);
        return nan ? "NaN is not a number" : std::string();  // and passes for any range
      },
      "");
  return (number & CLI::Range(low, high)).description("");
}

// Each adds itself below `app`.
Command AddImportPrompts(CLI::App& app);
Command AddNeedle(CLI::App& app);
Command AddUp(CLI::App& app);
Command AddChat(CLI::App& app);
Command AddTop(CLI::App& app);
Command AddProbe(CLI::App& app);
Command AddBench(CLI::App& app);
Command AddCompletion(CLI::App& app);  // of all that are added to `app`, which must outlive it

}  // namespace baton::cli
