#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton::engine {

// A whole file mapped for reading; move-only owner. The bytes stay valid as long as the object. A
// file that another process truncates while it is mapped kills the reader (SIGBUS), so weights are
// copied out at load and the mapping is dropped.
class MmapFile {
 public:
  // NotFound, PermissionDenied or InvalidArgument (not a regular file), with the path.
  static absl::StatusOr<MmapFile> Open(const std::string& path);

  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MmapFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace baton::engine
