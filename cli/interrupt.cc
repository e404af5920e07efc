#include "cli/interrupt.h"

#include <atomic>

#include "common/base/check.h"

namespace baton::cli {
namespace {

std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free, "touched by a signal handler");

}  // namespace

Interrupts::Interrupts(std::initializer_list<int> signals) {
  Reset();
  struct sigaction action {};
  action.sa_handler = [](int) { interrupts.fetch_add(1); };
  for (const int signal : signals) {
    struct sigaction before {};
    BATON_CHECK(sigaction(signal, &action, &before) == 0);
    before_.emplace_back(signal, before);
  }
}

Interrupts::~Interrupts() {
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
}

int Interrupts::Count() { return interrupts.load(); }

void Interrupts::Reset() { interrupts.store(0); }

}  // namespace baton::cli
