#include "common/shutdown_signal.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include <pthread.h>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 2'000'000};  // a start that is over waits

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
  for (const int ending : {SIGTERM, SIGINT}) std::signal(ending, SIG_DFL);
  BATON_CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
  return signal;
}

EndAtShutdownSignal::EndAtShutdownSignal(const ShutdownSignal& /*blocked*/,
                                         std::function<void(int)> before)
    : thread_([before = std::move(before)](const std::stop_token& stop) {
        const sigset_t set = ShutdownSignals();
        int signal = -1;
        while (signal < 0 && !stop.stop_requested())
          signal = sigtimedwait(&set, nullptr, &kPatience);
        if (signal < 0) return;
        before(signal);
        std::signal(signal, SIG_DFL);
        BATON_CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
        raise(signal);
        std::_Exit(128 +
                   signal);  // the first process of a container is spared by the default action
      }) {}

}  // namespace baton
