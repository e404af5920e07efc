#include "cli/needle/recall_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/pipe.h"
#include "common/status_macros.h"

extern char** environ;

namespace baton::cli {
namespace {

// A failed write must be an error, not the end of this program.
bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecallProcess>> RecallProcess::Start(
    const std::filesystem::path& binary, const std::vector<std::string>& flags) {
  std::signal(SIGPIPE, SIG_IGN);
  BATON_ASSIGN_OR_RETURN(Pipe input, Pipe::Open());
  BATON_ASSIGN_OR_RETURN(Pipe output, Pipe::Open());
  std::vector<std::string> words = {binary.string()};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read_end.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.write_end.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat(binary.string(), " cannot be started: ", std::strerror(error)));
  }
  return std::unique_ptr<RecallProcess>(new RecallProcess(
      binary.filename().string(), pid, std::move(input.write_end), std::move(output.read_end)));
}

// The end of its input is what ends a child that has inherited to ignore the signal.
RecallProcess::~RecallProcess() {
  input_ = Fd();
  output_ = Fd();
  kill(pid_, SIGTERM);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<nlohmann::json> RecallProcess::Ask(const nlohmann::json& request) {
  const auto ended = [&] {
    return absl::UnavailableError(absl::StrCat(name_, " ended instead of answering"));
  };
  if (!WriteAll(input_.get(), request.dump() + "\n")) return ended();
  size_t end = received_.find('\n');
  while (end == std::string::npos) {
    std::array<char, 1 << 16> buffer{};
    const ssize_t got = read(output_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ended();
    const size_t before = received_.size();
    received_.append(buffer.data(), static_cast<size_t>(got));
    end = received_.find('\n', before);
  }
  nlohmann::json answer =
      nlohmann::json::parse(received_.substr(0, end), nullptr, /*allow_exceptions=*/false);
  received_.erase(0, end + 1);
  if (!answer.is_object()) {
    return absl::DataLossError(absl::StrCat(name_, " answered something that is not JSON"));
  }
  return answer;
}

}  // namespace baton::cli
