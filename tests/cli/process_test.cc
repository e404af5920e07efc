#include "cli/process.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::cli {
namespace {

using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::HasSubstr;

ProcessSpec Shell(const std::string& script) {
  return {.name = "shell",
          .role = "shell",
          .binary = "/bin/sh",
          .flags = {"-c", script},
          .log_path = baton::testing::TestPath("process_log")};
}

int NextDescriptor() {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  return next;
}

TEST(ProcessTest, TellsWhereItListensAndHowItEnded) {
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> process,
                             Process::Start(Shell("echo listening grpc=a:1 metrics=b:2; exit 3")));
  EXPECT_THAT(process->AwaitAddresses(std::chrono::seconds(10), nullptr), IsOk());
  EXPECT_EQ(process->address("grpc"), "a:1");
  EXPECT_EQ(process->address("metrics"), "b:2");
  EXPECT_EQ(process->address("http"), "");
  EXPECT_TRUE(process->WaitFor(std::chrono::seconds(10)));
  EXPECT_EQ(process->HowItEnded(), "exit code 3");
}

TEST(ProcessTest, AnEndByTheSignalToDrainIsWellWhereNothingHadStarted) {
  for (const bool started : {false, true}) {
    BATON_ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Process> process,
        Process::Start(
            Shell(started ? "echo listening grpc=a:1; exec sleep 60" : "exec sleep 60")));
    if (started) {
      EXPECT_THAT(process->AwaitAddresses(std::chrono::seconds(10), nullptr), IsOk());
    }
    process->Drain();
    EXPECT_TRUE(process->WaitFor(std::chrono::seconds(10)));
    EXPECT_EQ(process->ended_well(), !started);
  }
}

TEST(ProcessTest, AProgramThatIsNotThereIsNamed) {
  ProcessSpec spec = Shell("");
  spec.binary = "/nonexistent/baton-shell";
  EXPECT_THAT(Process::Start(spec),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/nonexistent/baton-shell")));
}

// A log and two pipes are five descriptors.
TEST(ProcessTest, RunningOutOfDescriptorsIsAnErrorAndLeaksNone) {
  const ProcessSpec shell = Shell("exit 0");  // made while there are some
  // A limit is a number that descriptors stay below: those that are free lie above all others.
  std::vector<int> below;
  int highest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    highest = std::max(highest, std::stoi(entry.path().filename()));
  }
  while (NextDescriptor() < highest) below.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const absl::Cleanup close_them = [&] { std::ranges::for_each(below, close); };
  const int next = NextDescriptor();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (int left = 0; left <= 5; ++left) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next + left), .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status status = Process::Start(shell).status();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (left == 5) {
      EXPECT_THAT(status, IsOk());
    } else {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Too many open files")))
          << left;
    }
    EXPECT_EQ(NextDescriptor(), next) << left;
  }
}

}  // namespace
}  // namespace baton::cli
