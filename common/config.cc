#include "common/config.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <map>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/config_file.h"
#include "common/config_option.h"
#include "common/status_macros.h"
#include "common/suggestion.h"
#include "common/version.h"
#include "yaml-cpp/yaml.h"

namespace baton {
namespace {

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace

struct ConfigParser::Impl {
  std::string program;
  std::string description;
  std::string heading = "Options";
  std::vector<std::unique_ptr<BoundOption>> options;
  std::vector<std::function<void(ErrorList&)>> checks;
  std::vector<std::function<void(ErrorList&)>> inspections;

  BoundOption* Find(absl::string_view name) const {
    for (const auto& option : options) {
      if (option->name() == name) return option.get();
    }
    return nullptr;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& option : options) names.push_back(option->name());
    return names;
  }

  void CheckRequired(ErrorList& errors) const {
    for (const auto& option : options) {
      if (!option->missing()) continue;
      const std::string accepted = option->Accepted();
      errors.Add(absl::InvalidArgumentError(  // where any text will do, what it is for says more
          absl::StrCat("--", option->name(),
                       " is required: ", accepted == "text" ? option->help() : accepted)));
    }
  }

  std::vector<std::string> Describe(bool changed_only) const {
    std::vector<std::string> lines;
    for (const auto& option : options) {
      if (changed_only && !option->changed()) continue;
      lines.push_back(absl::StrCat(option->name(), " = ", option->Text()));
    }
    return lines;
  }

  absl::StatusOr<std::vector<std::string>> SeparateValues(int argc, const char* const* argv) const;
  absl::StatusOr<ParseOutcome> ParseFlags(int argc, const char* const* argv);
  void RefuseExtras(const std::vector<std::string>& extras, ErrorList& errors) const;
  void ApplyFlags(const std::map<std::string, CLI::Option*>& flags, ErrorList& errors);
  absl::Status ApplyFile(const std::string& path, ErrorList& errors);
  absl::Status ApplyText(const std::string& path, const std::string& text, ErrorList& errors);
  absl::Status ApplyNode(const std::string& path, const YAML::Node& key, const YAML::Node& value);
};

// The arguments, the last first, with "--flag=" as the two arguments "--flag" and "". CLI11 would
// take whatever stands behind "--flag=" or "--flag" for the value, another flag too.
absl::StatusOr<std::vector<std::string>> ConfigParser::Impl::SeparateValues(
    int argc, const char* const* argv) const {
  std::vector<std::string> separated;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    const absl::string_view flag = argument.substr(0, argument.find('='));
    const bool bare = flag == argument;
    const bool empty = argument.size() == flag.size() + 1;
    const BoundOption* option = absl::StartsWith(flag, "--") ? Find(flag.substr(2)) : nullptr;
    const bool is_switch = option != nullptr && option->is_switch();
    const bool takes_value = flag == "--config" || (option != nullptr && !is_switch);
    const bool lacks_value =
        takes_value && bare && (i + 1 == argc || absl::StartsWith(argv[i + 1], "--"));
    if (lacks_value || (is_switch && empty)) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, " has no value; expected ", option == nullptr ? "a file" : option->Accepted()));
    }
    separated.emplace_back(takes_value && empty ? flag : argument);
    if (takes_value && empty) separated.emplace_back();
    if (takes_value && bare) separated.emplace_back(argv[++i]);
  }
  std::reverse(separated.begin(), separated.end());
  return separated;
}

absl::StatusOr<ParseOutcome> ConfigParser::Impl::ParseFlags(int argc, const char* const* argv) {
  CLI::App app(description, program);
  app.set_help_flag("-h,--help", "print this and exit");
  app.set_version_flag("--version", absl::StrCat(program, " ", Version()),
                       "print the version and exit");
  app.get_formatter()->column_width(36);
  app.allow_extras();  // named below, with a suggestion
  std::string file;
  const CLI::Option* const config =
      app.add_option("--config", file, "YAML file that holds any of these options; flags win")
          ->option_text("FILE");
  bool check_only = false;
  app.add_flag("--check-config", check_only,
               "read flags and file, look at the files that they name, print what they amount to, "
               "or all that is wrong, exit");

  std::map<std::string, CLI::Option*> flags;
  for (const auto& option : options) {
    const std::string name = absl::StrCat("--", option->name());
    CLI::Option* flag = option->is_switch()
                            ? app.add_flag(name)
                            : app.add_option(name, [](const CLI::results_t&) { return true; })
                                  ->type_name(option->Placeholder());
    flag->group(option->heading())
        ->description(option->Description())
        ->option_text(option->Placeholder())
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    flags[option->name()] = flag;
  }
  BATON_ASSIGN_OR_RETURN(std::vector<std::string> arguments, SeparateValues(argc, argv));
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return ParseOutcome::kExit;
  } catch (const CLI::CallForVersion&) {
    std::cout << app.version() << std::endl;
    return ParseOutcome::kExit;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  ErrorList errors;
  RefuseExtras(app.remaining(), errors);
  const absl::Status read = config->count() > 0 ? ApplyFile(file, errors) : absl::OkStatus();
  errors.Add(read);
  ApplyFlags(flags, errors);
  if (!read.ok()) return errors.ToStatus();  // who knows what it would have said
  CheckRequired(errors);
  for (const auto& check : checks) check(errors);
  if (check_only) {
    for (const auto& inspect : inspections) inspect(errors);
  }
  BATON_RETURN_IF_ERROR(errors.ToStatus());
  if (!check_only) return ParseOutcome::kRun;
  for (const std::string& line : Describe(/*changed_only=*/false)) std::cout << line << "\n";
  return ParseOutcome::kExit;
}

void ConfigParser::Impl::RefuseExtras(const std::vector<std::string>& extras,
                                      ErrorList& errors) const {
  for (size_t i = 0; i < extras.size(); ++i) {
    absl::string_view name = extras[i];
    name = name.substr(0, name.find('='));
    if (!absl::StartsWith(name, "--")) {
      errors.Add(
          absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", extras[i], "\"")));
      continue;
    }
    errors.Add(absl::InvalidArgumentError(absl::StrCat(
        "unknown flag ", name, Suggestion(name.substr(2), Names(), "--"), " (see --help)")));
    // What may be its value is not told as well.
    const bool bare = name.size() == extras[i].size();
    if (bare && i + 1 < extras.size() && !absl::StartsWith(extras[i + 1], "--")) ++i;
  }
}

void ConfigParser::Impl::ApplyFlags(const std::map<std::string, CLI::Option*>& flags,
                                    ErrorList& errors) {
  for (const auto& option : options) {
    const std::vector<std::string> texts = flags.at(option->name())->results();
    if (texts.empty()) continue;
    const std::string name = absl::StrCat("--", option->name());
    if (texts.size() > 1 && !option->is_list()) {
      errors.Add(
          absl::InvalidArgumentError(absl::StrCat(name, " is given ", texts.size(), " times")));
      continue;
    }
    errors.Add(Prefixed(absl::StrCat(name, ": "), option->Assign(texts)));
  }
}

// What is wrong with single keys goes to `errors`; an error is one of the whole file.
absl::Status ConfigParser::Impl::ApplyFile(const std::string& path, ErrorList& errors) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  return text.ok() ? ApplyText(path, *text, errors)
                   : Prefixed("configuration file: ", text.status());
}

absl::Status ConfigParser::Impl::ApplyText(const std::string& path, const std::string& text,
                                           ErrorList& errors) {
  BATON_ASSIGN_OR_RETURN(const YAML::Node root, ParseConfigText(text, path));
  try {
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceInFile(path, root.Mark()), "expected \"key: value\" lines"));
    }
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string where = PlaceInFile(path, entry.first.Mark());
      if (!entry.first.IsScalar()) {
        errors.Add(absl::InvalidArgumentError(absl::StrCat(where, "a key must be plain text")));
        continue;
      }
      const std::string key = absl::StrReplaceAll(entry.first.Scalar(), {{"_", "-"}});
      errors.Add(seen.insert(key).second
                     ? ApplyNode(path, entry.first, entry.second)
                     : absl::InvalidArgumentError(absl::StrCat(where, key, " is given twice")));
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(PlaceInFile(path, error.mark), error.msg));
  }
  return absl::OkStatus();
}

absl::Status ConfigParser::Impl::ApplyNode(const std::string& path, const YAML::Node& key,
                                           const YAML::Node& value) {
  const std::string where = PlaceInFile(path, key.Mark());
  const std::string& written = key.Scalar();
  const std::string name = absl::StrReplaceAll(written, {{"_", "-"}});
  BoundOption* option = Find(name);
  if (option == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "unknown key ", written, Suggestion(name, Names())));
  }
  std::vector<std::string> texts;
  if (value.IsScalar()) {
    texts.push_back(value.Scalar());
  } else if (value.IsSequence() && option->is_list()) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) {
        return absl::InvalidArgumentError(absl::StrCat(PlaceInFile(path, item.Mark()), written,
                                                       ": an item of a list must be plain text"));
      }
      texts.push_back(item.Scalar());
    }
  } else {
    const char* found = value.IsMap() ? "a nested map" : value.IsSequence() ? "a list" : "nothing";
    return absl::InvalidArgumentError(
        absl::StrCat(where, written, ": found ", found, "; expected ", option->Accepted()));
  }
  return Prefixed(absl::StrCat(where, written, ": "), option->Assign(texts));
}

ConfigParser::ConfigParser(std::string program, std::string description)
    : impl_(std::make_unique<Impl>()) {
  impl_->program = std::move(program);
  impl_->description = std::move(description);
}

ConfigParser::~ConfigParser() = default;

void ConfigParser::Group(std::string heading) { impl_->heading = std::move(heading); }

ConfigOption& ConfigParser::Add(std::string name, ConfigField field, std::string help) {
  BATON_CHECK(impl_->Find(name) == nullptr) << "option " << name << " is added twice";
  impl_->options.push_back(
      std::make_unique<BoundOption>(std::move(name), impl_->heading, field, std::move(help)));
  return *impl_->options.back();
}

void ConfigParser::Check(std::function<void(ErrorList& errors)> check) {
  impl_->checks.push_back(std::move(check));
}

void ConfigParser::Inspect(std::function<void(ErrorList& errors)> inspect) {
  impl_->inspections.push_back(std::move(inspect));
}

absl::StatusOr<ParseOutcome> ConfigParser::Parse(int argc, const char* const* argv) {
  return impl_->ParseFlags(argc, argv);
}

absl::Status ConfigParser::ParseFile(const std::string& path) {
  ErrorList errors;
  errors.Add(impl_->ApplyFile(path, errors));
  impl_->CheckRequired(errors);
  return errors.ToStatus();
}

std::vector<std::string> ConfigParser::Describe() const { return impl_->Describe(false); }
std::vector<std::string> ConfigParser::DescribeChanged() const { return impl_->Describe(true); }

}  // namespace baton
