#include "common/shutdown_signal.h"

#include <csignal>

#include <pthread.h>

#include "common/base/check.h"

namespace baton {
namespace {

sigset_t ShutdownSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

ShutdownSignal::ShutdownSignal() {
  const sigset_t set = ShutdownSignals();
  BATON_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  BATON_CHECK(std::signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

int ShutdownSignal::Wait() {
  const sigset_t set = ShutdownSignals();
  int signal = 0;
  BATON_CHECK(sigwait(&set, &signal) == 0);
  BATON_CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
  return signal;
}

}  // namespace baton
