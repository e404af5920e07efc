#include "cli/command_line.h"

#include <iostream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal.h"
#include "common/version.h"

namespace baton::cli {

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
    const std::vector<std::string> extras = app.remaining();
    const bool failed = error.get_exit_code() != 0;
    if (failed && app.get_subcommands().empty() && !extras.empty() && extras[0][0] != '-') {
      std::cerr << "baton: no command " << Harmless(extras[0]) << "; see baton --help" << std::endl;
      return kExitUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;  // 0: --help and --version
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
