#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/parallel/expert_share.h"
#include "engine/parallel/frame.h"
#include "engine/parallel/step_board.h"

// The ranks that share a model's experts, as one of them sees it; see README.md.

namespace baton::engine {

// Logs why and ends the process with 1 at once: no rank can compute without the others, and what
// its other threads wait for may never come.
[[noreturn]] void EndProcess(const absl::Status& why);

struct ExpertGroupOptions {
  int size = 1;
  int rank = 0;
  std::string address;        // host:port at which rank 0 listens
  Facts facts = {};           // name and value of what must be equal on all ranks
  int64_t max_positions = 0;  // that a sequence of the model can have
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds silence = std::chrono::seconds(5);  // of a process
  std::chrono::nanoseconds stall = std::chrono::seconds(60);   // of a rank that others wait for
  std::chrono::nanoseconds start = std::chrono::minutes(30);   // the same, before the first step
  // Called once, by the control thread, when the group has ended otherwise than by leaving.
  std::function<void(const absl::Status&)> on_fault = EndProcess;
};

class ExpertGroup {
 public:
  // Errors: Meet of rendezvous.h.
  static absl::StatusOr<std::unique_ptr<ExpertGroup>> Join(const ExpertGroupOptions& options);
  // A fault for the others unless all have left.
  ~ExpertGroup();

  int size() const;
  int rank() const;
  ExpertShare share() const { return {.rank = rank(), .ranks = size()}; }

  // --- Engine thread only. Errors name the rank at fault; on_fault is called, too.

  // The next step of the group, which the caller takes part in: with its own pass if it has
  // rows[rank()] > 0, made so large if it may grow; else with no rows, and asks again.
  absl::StatusOr<Step> Agree(const Wish& wish);
  // This rank has nothing to compute until it calls Agree. When others have, `on_step` is called,
  // once and on another thread: the engine thread is to come and TakeCall.
  void Rest();
  void OnStep(std::function<void()> on_step);  // not called any more once this has returned
  // The step that was decided while this rank rested, if it has not taken it yet.
  std::optional<Step> TakeCall();
  // Sends to[r] to every other rank r and waits for what it sends here, which must fill from[r];
  // the own to[rank()], as large as from[rank()], is copied. All ranks call it in the same order.
  absl::Status Exchange(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from);

  // --- Any thread.

  // This rank has nothing of its own any more and keeps joining; true once all have said so.
  bool Leave(std::chrono::nanoseconds timeout);
  // Asked several times a second; an error is a fault of this rank. Empty: not asked any more once
  // this has returned.
  void Watch(std::function<absl::Status()> health);

 private:
  struct Impl;
  explicit ExpertGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
