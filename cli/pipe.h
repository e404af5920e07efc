#pragma once

#include "absl/status/statusor.h"
#include "common/fd.h"

namespace baton::cli {

// For a child: its ends are not inherited by whatever it starts.
struct Pipe {
  Fd read_end, write_end;

  static absl::StatusOr<Pipe> Open();  // UNAVAILABLE: out of descriptors
};

}  // namespace baton::cli
