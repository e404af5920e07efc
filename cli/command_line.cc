#include "cli/command_line.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "common/suggestion.h"
#include "common/version.h"

namespace baton::cli {
namespace {

std::vector<std::string> Flags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return names;
}

std::vector<std::string> Subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

// Of the arguments of `command`, which may be the program itself: in words of ours where it is a
// name that nobody knows.
std::string WhatIsWrong(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = command.remaining();
  if (unknown.empty()) return error.what();
  absl::string_view name = unknown[0];
  name = name.substr(0, name.find('='));
  if (absl::ConsumePrefix(&name, "--")) {
    return absl::StrCat("unknown flag --", name, Suggestion(name, Flags(command), "--"));
  }
  if (absl::StartsWith(name, "-")) return absl::StrCat("unknown flag ", name);
  const std::vector<std::string> subcommands = Subcommands(command);
  if (subcommands.empty()) return absl::StrCat("unexpected argument \"", unknown[0], "\"");
  return absl::StrCat("no command ", name, Suggestion(name, subcommands));
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app("Runs, asks and measures Baton, a prefill/decode disaggregated serving cluster.",
               "baton");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(Version()));
  const std::vector<Command> commands = {
      AddUp(app),    AddChat(app),   AddTop(app),           AddProbe(app),
      AddBench(app), AddNeedle(app), AddImportPrompts(app), AddCompletion(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    const std::string program =
        chosen.empty() ? "baton" : absl::StrCat("baton ", chosen[0]->get_name());
    std::cerr << program << ": " << Harmless(WhatIsWrong(chosen.empty() ? app : *chosen[0], error))
              << " (see " << program << " --help)" << std::endl;
    return kExitUsage;
  }

  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const absl::Status status = command.run();
    if (status.ok()) return kExitOk;
    std::cerr << "baton " << command.app->get_name() << ": " << Harmless(status.message())
              << std::endl;
    return IsUsageError(status) ? kExitUsage : kExitFailed;
  }
  return kExitUsage;  // not reached: require_subcommand
}

}  // namespace baton::cli
