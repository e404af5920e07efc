#include <iostream>
#include <vector>

#include "cli/command.h"
#include "common/version.h"

int main(int argc, char** argv) {
  using baton::cli::Command;
  CLI::App app("Tools of Baton, a prefill/decode disaggregated serving cluster.", "baton");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(baton::Version()));
  const std::vector<Command> commands = {baton::cli::AddImportPrompts(app)};
  CLI11_PARSE(app, argc, argv);

  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const absl::Status status = command.run();
    if (status.ok()) return 0;
    std::cerr << "baton " << command.app->get_name() << ": " << status.message() << std::endl;
    return 1;
  }
  return 1;  // not reached: require_subcommand
}
