#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "decode/config.h"
#include "worker/worker.h"

namespace baton::decode {

// A worker that generates what is asked for, from prompts that prefill workers hand over or that it
// computes itself.
absl::StatusOr<std::unique_ptr<worker::Worker>> StartDecodeWorker(const DecodeConfig& config);

}  // namespace baton::decode
