#include "cli/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_worker.h"

namespace baton::cli {
namespace {

int Probe(const std::string& address) {
  const char* const arguments[] = {"baton", "probe", address.c_str()};
  return RunCommandLine(3, arguments);
}

TEST(ProbeCommandTest, AWorkerIsReadyOrIsDrainingAsHealthOfRoutersSays) {
  testing::FakeWorker worker(v1::WORKER_ROLE_DECODE);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Probe(worker.address()), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), worker.address() + " is ready\n");

  worker.SetInfo([](v1::GetInfoResponse& info) { info.set_ready(false); });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Probe(worker.address()), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "baton probe: " + worker.address() + " is not ready: it is draining\n");
}

}  // namespace
}  // namespace baton::cli
