#pragma once

namespace baton::cli {

// Everything `baton` does: parses the arguments, runs the subcommand, reports its error as one line
// on stderr. Returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace baton::cli
