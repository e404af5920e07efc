#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/chat_prompt_import.h"
#include "cli/command.h"
#include "cli/files.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string source;
  std::string output;  // empty: DefaultOutput
};

// Into the model's directory, of which the file is part as encoding/encoding_dsv4.py.
fs::path DefaultOutput(const fs::path& source) {
  std::error_code ignored;  // a path that cannot be completed stays as it is
  const fs::path folder = fs::absolute(source, ignored).parent_path();
  return (folder.filename() == "encoding" ? folder.parent_path() : folder) / "chat_prompts.json";
}

absl::Status Run(const Options& options) {
  if (std::error_code ignored; fs::is_directory(options.source, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(options.source, " is a folder"));
  }
  BATON_ASSIGN_OR_RETURN(const std::string source, ReadFile(options.source));
  const absl::StatusOr<ChatPromptTexts> texts = ImportChatPrompts(source, OfficialDigests());
  if (absl::IsInvalidArgument(texts.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.source, ": ", texts.status().message(),
                     "; is this a checkpoint's encoding/encoding_dsv4.py?"));
  }
  BATON_RETURN_IF_ERROR(texts.status()) << options.source;

  const fs::path output =
      options.output.empty() ? DefaultOutput(options.source) : fs::path(options.output);
  BATON_RETURN_IF_ERROR(WriteFile(output, ToJson(*texts)));
  std::cout << "wrote " << output.string() << std::endl;
  return absl::OkStatus();
}

}  // namespace

Command AddImportPrompts(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("import-prompts",
                         "Writes chat_prompts.json, the fixed texts of the chat format, out of the "
                         "encoding file of a checkpoint, and checks their SHA-256.");
  command->add_option("source", options->source, "the checkpoint's encoding/encoding_dsv4.py")
      ->required();
  command->add_option("--output", options->output,
                      "file to write; by default chat_prompts.json in the model's directory");
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
