#include "prefill/run_state.h"

#include <utility>

#include "common/base/check.h"

namespace baton::prefill {

Action RunState::End(absl::Status status) {
  if (phase_ == Phase::kEnded) return Action::kNone;
  phase_ = Phase::kEnded;
  end_status_ = std::move(status);
  return Action::kEnd;
}

void RunState::OnStarted() {
  BATON_CHECK(phase_ == Phase::kQueued);
  phase_ = Phase::kComputing;
}

Action RunState::OnGrant() {
  if (phase_ == Phase::kEnded) return Action::kNone;
  if (phase_ == Phase::kQueued) {
    return End(absl::FailedPreconditionError("Grant came before Started"));
  }
  if (granted_) return End(absl::FailedPreconditionError("Grant came twice"));
  granted_ = true;
  transfer_open_ = true;
  return Action::kOpenTransfer;
}

void RunState::OnComputed() {
  if (phase_ == Phase::kComputing) phase_ = Phase::kComputed;
}

Action RunState::OnReceived() {
  if (phase_ == Phase::kEnded) return Action::kNone;
  if (phase_ != Phase::kComputed || !granted_) {
    return End(absl::FailedPreconditionError("Received came before everything was sent"));
  }
  return End(absl::OkStatus());
}

Action RunState::OnTransferEnded(absl::Status status) {
  BATON_CHECK(transfer_open_);
  transfer_open_ = false;
  if (status.ok()) return Action::kNone;
  return End(std::move(status));
}

Action RunState::OnEnd(absl::Status status) { return End(std::move(status)); }

}  // namespace baton::prefill
