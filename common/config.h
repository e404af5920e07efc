#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// A role's configuration is one plain struct whose fields are bound once, with help and limits, and
// can then be set by `--flag=value` and by a YAML file (`--config=FILE`, keys = flag names with
// '-' or '_'); flags win over the file. Unknown keys, unknown flags and bad values are errors that
// name them. Environment variables are not read.
//
//   ConfigParser parser("baton-decode", "Decodes sequences that prefill workers hand over.");
//   parser.Group("Network");
//   parser.Add("listen", &config.listen, "host:port to serve gRPC on; port 0 picks one");
//   parser.Add("page-tokens", &config.page_tokens, "tokens a page").Range(128, 4096);
//   BATON_ASSIGN_OR_RETURN(ParseOutcome outcome, parser.Parse(argc, argv));
//   if (outcome == ParseOutcome::kExit) return 0;   // --help or --version was printed

namespace baton {

enum class ParseOutcome { kRun, kExit };

// Refines the option added last. Limits are inclusive and shown in --help.
class ConfigOption {
 public:
  virtual ~ConfigOption() = default;
  virtual ConfigOption& Range(double low, double high) = 0;
  virtual ConfigOption& OneOf(std::vector<std::string> values) = 0;
  virtual ConfigOption& Required() = 0;
  virtual ConfigOption& Unit(std::string unit) = 0;  // shown in --help: s, bytes, tokens
};

class ConfigParser {
 public:
  ConfigParser(std::string program, std::string description);
  ~ConfigParser();

  // Options added from here on are listed under this heading.
  void Group(std::string heading);

  // The field's value at this point is the default shown in --help. Field must outlive the parser.
  ConfigOption& Add(std::string name, std::string* field, std::string help);
  ConfigOption& Add(std::string name, bool* field, std::string help);
  ConfigOption& Add(std::string name, int* field, std::string help);
  ConfigOption& Add(std::string name, int64_t* field, std::string help);
  ConfigOption& Add(std::string name, double* field, std::string help);
  // Accepts 250ms, 5s, 2m, 1h or a plain number of seconds.
  ConfigOption& Add(std::string name, std::chrono::nanoseconds* field, std::string help);
  // Repeatable flag, comma-separated on the command line, a list in YAML.
  ConfigOption& Add(std::string name, std::vector<std::string>* field, std::string help);

  absl::StatusOr<ParseOutcome> Parse(int argc, const char* const* argv);
  // For tests of configuration files: parses FILE as if by --config, with no flags.
  absl::Status ParseFile(const std::string& path);

  // "name = value" lines of every option as parsed, for the start-up log.
  std::vector<std::string> Describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
