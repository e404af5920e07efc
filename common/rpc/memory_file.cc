#include "common/rpc/memory_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::rpc {
namespace {

absl::Status Failed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a file in memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<MemoryFile> MemoryFile::Create() {
  const int fd = memfd_create("baton", MFD_CLOEXEC);
  if (fd < 0) return Failed("memfd_create");
  return MemoryFile(fd);
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::Status MemoryFile::Replace(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const MemoryFile fresh, Create());
  for (size_t written = 0; written < text.size();) {
    const ssize_t bytes = write(fresh.fd_, text.data() + written, text.size() - written);
    if (bytes < 0) return Failed("write");
    written += static_cast<size_t>(bytes);
  }
  // The number stays, and stands for another file from one moment to the next.
  if (dup3(fresh.fd_, fd_, O_CLOEXEC) < 0) return Failed("dup3");
  return absl::OkStatus();
}

}  // namespace baton::rpc
