#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/fd.h"

namespace baton::rpc {

// A file in memory that others of this process find under a path, for libraries that read nothing
// else. Move-only. Not thread-safe, but for those who read the path.
class MemoryFile {
 public:
  // RESOURCE_EXHAUSTED without memory or file descriptors.
  static absl::StatusOr<MemoryFile> Create(std::string_view text = {});

  std::string path() const;

  // Takes the text of `fresh`, which needs neither memory nor a descriptor more: whoever opens the
  // path finds the old text or the new, never a part; whoever has it open keeps the old.
  void Replace(const MemoryFile& fresh);

 private:
  explicit MemoryFile(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace baton::rpc
