#include "cli/process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/pipe.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookAgain = std::chrono::milliseconds(20);

absl::Status SystemError(absl::string_view doing) {
  return absl::UnavailableError(absl::StrCat(doing, ": ", std::strerror(errno)));
}

// In the child: only what is safe after fork in a program with threads. An error of exec goes to
// the parent through `error_fd`, which a successful exec closes.
[[noreturn]] void RunChild(char* const* arguments, char* const* environment, int out, int log,
                           int error_fd, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent && dup2(out, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
    execve(arguments[0], arguments, environment);
  }
  const int error = errno;
  (void)!write(error_fd, &error, sizeof(error));
  _exit(127);
}

// What the child said on the pipe instead of becoming the program; 0: nothing.
int ErrorOfExec(const Fd& read_end) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(read_end.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

// With a null pointer at the end, as exec takes it.
std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This program's environment, with `changes` in it.
std::vector<std::string> Environment(const std::vector<std::string>& changes) {
  std::vector<std::string> variables = changes;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    const absl::string_view name = text.substr(0, text.find('=') + 1);
    const bool changed =
        std::any_of(changes.begin(), changes.end(),
                    [&](const std::string& change) { return absl::StartsWith(change, name); });
    if (!changed) variables.emplace_back(text);
  }
  return variables;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Start(ProcessSpec spec) {
  const Fd log(open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return SystemError(absl::StrCat("log ", spec.log_path.string()));
  BATON_ASSIGN_OR_RETURN(Pipe out, Pipe::Open());
  BATON_ASSIGN_OR_RETURN(Pipe failure, Pipe::Open());

  std::vector<std::string> words = {spec.binary.string()};
  words.insert(words.end(), spec.flags.begin(), spec.flags.end());
  std::vector<std::string> variables = Environment(spec.environment);
  const std::vector<char*> arguments = Pointers(words), environment = Pointers(variables);

  std::unique_ptr<Process> process(new Process(std::move(spec)));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    RunChild(arguments.data(), environment.data(), out.write_end.get(), log.get(),
             failure.write_end.get(), parent);
  }
  int error = pid < 0 ? errno : 0;
  failure.write_end = Fd();
  process->pid_ = pid;
  process->stdout_ = std::move(out.read_end);
  if (pid > 0) error = ErrorOfExec(failure.read_end);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat(process->spec_.name, ": cannot start ", words[0], ": ", std::strerror(error)));
  }
  return process;
}

Process::~Process() { Kill(); }

absl::Status Process::AwaitAddresses(std::chrono::nanoseconds timeout,
                                     const std::function<bool()>& cancelled) {
  if (!addresses_.empty()) return absl::OkStatus();
  const Clock::time_point deadline = Clock::now() + timeout;
  std::string said;
  while (said.empty() || said.back() != '\n') {
    if (cancelled && cancelled()) return absl::CancelledError("interrupted");
    if (Clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(spec_.name, " did not come up in time; the end of its log:\n", LogEnd()));
    }
    pollfd readable{.fd = stdout_.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 100) <= 0) continue;
    char bytes[4096];
    const ssize_t got = read(stdout_.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      WaitFor(std::chrono::seconds(5));
      return absl::UnavailableError(absl::StrCat(spec_.name, " ended at start, ", HowItEnded(),
                                                 "; the end of its log:\n", LogEnd()));
    }
    said.append(bytes, static_cast<size_t>(got));
  }
  for (absl::string_view word : absl::StrSplit(said, absl::ByAnyChar(" \n"))) {
    const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (!field.second.empty()) addresses_.insert(field);
  }
  return absl::OkStatus();
}

std::string Process::address(const std::string& kind) const {
  const auto found = addresses_.find(kind);
  return found == addresses_.end() ? "" : found->second;
}

bool Process::Running() {
  int status = 0;
  if (!wait_status_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return pid_ > 0 && !wait_status_;
}

std::string Process::HowItEnded() const {
  if (!wait_status_) return "still running";
  if (WIFEXITED(*wait_status_)) return absl::StrCat("exit code ", WEXITSTATUS(*wait_status_));
  const int signal = WTERMSIG(*wait_status_);
  return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
}

void Process::Drain() {
  if (Running() && !std::exchange(draining_, true)) kill(pid_, SIGTERM);
}

bool Process::WaitFor(std::chrono::nanoseconds timeout, const std::function<bool()>& enough) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (Running() && Clock::now() < deadline && !(enough && enough())) {
    std::this_thread::sleep_for(kLookAgain);
  }
  return !Running();
}

void Process::Kill() {
  if (!Running()) return;
  kill(pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) wait_status_ = status;
}

std::string Process::LogEnd(size_t lines) const {
  std::ifstream log(spec_.log_path);
  std::deque<std::string> end;
  for (std::string line; std::getline(log, line);) {
    end.push_back(line);
    if (end.size() > lines) end.pop_front();
  }
  return absl::StrJoin(end, "\n");
}

}  // namespace baton::cli
