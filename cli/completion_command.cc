#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/completion.h"

namespace baton::cli {
namespace {

// The table of commands as CLI11 holds it.
std::vector<CompletionCommand> CommandsOf(const CLI::App& app) {
  std::vector<CompletionCommand> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CompletionCommand entry{
        .name = command->get_name(), .help = command->get_description(), .flags = {}};
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        entry.flags.push_back({.name = "--" + name,
                               .help = option->get_description(),
                               .takes_value = option->get_items_expected_max() > 0});
      }
    }
    commands.push_back(std::move(entry));
  }
  return commands;
}

}  // namespace

Command AddCompletion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion",
      "Prints a script that completes commands and flags: source <(baton completion bash), or "
      "baton completion fish | source.");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return {.app = command, .run = [shell, &app] {
            std::cout << CompletionScript(*shell, CommandsOf(app)) << std::flush;
            return absl::OkStatus();
          }};
}

}  // namespace baton::cli
