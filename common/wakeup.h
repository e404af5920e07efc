#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "common/fd.h"

namespace baton {

// Wakes a thread that polls: one or many times between two looks are the same. Move-only;
// thread-safe otherwise.
class Wakeup {
 public:
  // RESOURCE_EXHAUSTED without a file descriptor for it.
  static absl::StatusOr<Wakeup> Create();

  // For poll: readable from Wake to Clear.
  int watched() const { return event_.get(); }
  void Wake() const;
  // Before looking at what there is to do, so that nothing is slept over.
  void Clear() const;

 private:
  explicit Wakeup(Fd event) : event_(std::move(event)) {}
  Fd event_;
};

}  // namespace baton
