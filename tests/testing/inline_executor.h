#pragma once

#include <functional>

#include "kvtransfer/executor.h"

namespace baton::testing {

// Runs tasks at once, on the caller's thread, which holds no lock.
class InlineExecutor final : public kvtransfer::Executor {
 public:
  void Run(std::function<void()> task) override { task(); }
};

}  // namespace baton::testing
