#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "prefill/config.h"
#include "worker/worker.h"

namespace baton::prefill {

// A worker that computes prompts for decode workers and sends them their caches.
absl::StatusOr<std::unique_ptr<worker::Worker>> StartPrefillWorker(const PrefillConfig& config);

}  // namespace baton::prefill
