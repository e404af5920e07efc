#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/error_list.h"

// A role's configuration is one plain struct whose fields are bound once, with help and limits, and
// can then be set by `--flag=value` and by a YAML file (`--config=FILE`, keys = flag names with
// '-' or '_'); flags win over the file. Unknown keys, unknown flags and bad values are errors that
// name them, all of them at once. --help, --version and --check-config exit at once; the last looks
// at what is named, too (Inspect), and prints what all of it amounts to. Environment variables are
// not read.
//
//   ConfigParser parser("baton-decode", "Decodes sequences that prefill workers hand over.");
//   parser.Group("Network");
//   parser.Add("listen", &config.listen, "host:port to serve gRPC on; port 0 picks one");
//   parser.Add("page-tokens", &config.page_tokens, "tokens a page").Range(128, 4096);
//   BATON_ASSIGN_OR_RETURN(ParseOutcome outcome, parser.Parse(argc, argv));
//   if (outcome == ParseOutcome::kExit) return 0;   // what --help asked for was printed

namespace baton {

enum class ParseOutcome { kRun, kExit };

// Refines the option just added. Limits are inclusive and shown in --help; those of a duration are
// in seconds. OneOf is for text, Required refuses an option that neither flag nor file gives.
// Format is for text and for each item of a list: `expected` says what it looks like, `matches` is
// false for what is refused.
class ConfigOption {
 public:
  virtual ~ConfigOption() = default;
  virtual ConfigOption& Range(double low, double high) = 0;
  virtual ConfigOption& MultipleOf(int64_t divisor) = 0;
  virtual ConfigOption& OneOf(std::vector<std::string> values) = 0;
  virtual ConfigOption& Format(std::string expected, bool (*matches)(const std::string& text)) = 0;
  virtual ConfigOption& Required() = 0;
  virtual ConfigOption& Unit(std::string unit) = 0;  // shown in --help: s, bytes, tokens
};

// What can be bound. Durations accept 250ms, 5s, 2m, 1h or a plain number of seconds and are never
// negative. Lists are comma-separated, without empty items; a flag may be repeated, YAML may hold a
// list.
using ConfigField = std::variant<std::string*, bool*, int*, int64_t*, double*,
                                 std::chrono::nanoseconds*, std::vector<std::string>*>;

class ConfigParser {
 public:
  ConfigParser(std::string program, std::string description);
  ~ConfigParser();

  // Options added from here on are listed under this heading.
  void Group(std::string heading);

  // The field's value at this point is the default shown in --help; the field must outlive the
  // parser. `name` has '-' between words. Adding a name twice is a broken invariant.
  ConfigOption& Add(std::string name, ConfigField field, std::string help);

  // What no option can be judged for alone: asked once flags and file have been read.
  void Check(std::function<void(ErrorList& errors)> check);
  // What takes files that options name: asked by --check-config alone, since a start looks at them
  // anyway. It finds fields that were refused as they were before.
  void Inspect(std::function<void(ErrorList& errors)> inspect);

  // The file named by --config first, then flags. INVALID_ARGUMENT names the flag, or file and
  // line, the value and what is accepted; NOT_FOUND: the file cannot be read. Several errors are
  // one, as ErrorList says them. After an error the fields are unspecified.
  absl::StatusOr<ParseOutcome> Parse(int argc, const char* const* argv);
  // For tests of configuration files: parses FILE as if by --config, with no flags and no Check.
  absl::Status ParseFile(const std::string& path);

  // "name = value" of every option as parsed.
  std::vector<std::string> Describe() const;
  // Of those alone whose value is not the default: what a start-up log needs.
  std::vector<std::string> DescribeChanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
