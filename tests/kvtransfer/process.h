#pragma once

#include <functional>
#include <utility>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd.h"
#include "gtest/gtest.h"

namespace baton::kvtransfer {

// Runs `body` in another process, which says by bytes in a pipe how far it is.
class Process {
 public:
  explicit Process(const std::function<void(int pipe)>& body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      body(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    pipe_ = Fd(ends[0]);
  }
  ~Process() { Kill(); }
  void WaitForByte() {
    char byte = 0;
    EXPECT_EQ(read(pipe_.get(), &byte, 1), 1);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  Fd pipe_;
};

}  // namespace baton::kvtransfer
