#include "cli/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace baton::cli {
namespace {

// For single quotes of a POSIX shell; zsh also takes ':' and brackets apart.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string Names(const std::vector<CompletionCommand>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const CompletionCommand& command) {
    absl::StrAppend(out, command.name);
  });
}

std::string Bash(const std::vector<CompletionCommand>& commands) {
  std::string cases;
  for (const CompletionCommand& command : commands) {
    std::vector<std::string> words;
    for (const CompletionFlag& flag : command.flags) {
      words.push_back(absl::StrCat(flag.name, flag.takes_value ? "=" : ""));
    }
    absl::StrAppend(&cases, "    ", command.name, ") words=", Quoted(absl::StrJoin(words, " ")),
                    " ;;\n");
  }
  return absl::StrCat(
      "_baton() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} words=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W ",
      Quoted(Names(commands) + " --help --version"),
      " -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $word in\n"
      "    -*) ;;\n"
      "    =) COMPREPLY=($(compgen -f)); return ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
      "  esac\n"
      "  case ${COMP_WORDS[1]} in\n",
      cases,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
      "}\n"
      "complete -F _baton baton\n");
}

std::string Zsh(const std::vector<CompletionCommand>& commands) {
  const auto described = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {":", "\\:"}, {"[", "\\["}, {"]", "\\]"}});
  };
  std::string names, cases;
  for (const CompletionCommand& command : commands) {
    absl::StrAppend(&names, "    ",
                    Quoted(absl::StrCat(command.name, ":", described(command.help))), "\n");
    absl::StrAppend(&cases, "    ", command.name, ") _arguments");
    for (const CompletionFlag& flag : command.flags) {
      const std::string spec =
          absl::StrCat(flag.name, flag.takes_value ? "=" : "", "[", described(flag.help), "]",
                       flag.takes_value ? ":value:_files" : "");
      absl::StrAppend(&cases, " \\\n      ", Quoted(spec));
    }
    absl::StrAppend(&cases, " \\\n      '*:file:_files' ;;\n");
  }
  return absl::StrCat(
      "#compdef baton\n"
      "_baton() {\n"
      "  local -a commands=(\n",
      names,
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n",
      cases,
      "  esac\n"
      "}\n"
      "compdef _baton baton\n");
}

std::string Fish(const std::vector<CompletionCommand>& commands) {
  const auto quoted = [](const std::string& text) {  // fish knows \' within single quotes
    return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
  };
  std::string script;
  for (const CompletionCommand& command : commands) {
    absl::StrAppend(&script, "complete -c baton -f -n __fish_use_subcommand -a ", command.name,
                    " -d ", quoted(command.help), "\n");
    for (const CompletionFlag& flag : command.flags) {
      absl::StrAppend(&script, "complete -c baton -n '__fish_seen_subcommand_from ", command.name,
                      "' -l ", flag.name.substr(2), flag.takes_value ? " -r" : "", " -d ",
                      quoted(flag.help), "\n");
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(absl::string_view shell,
                             const std::vector<CompletionCommand>& commands) {
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return Bash(commands);
}

}  // namespace baton::cli
