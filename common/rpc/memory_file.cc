#include "common/rpc/memory_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::rpc {
namespace {

absl::Status Failed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a file in memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<MemoryFile> MemoryFile::Create(std::string_view text) {
  MemoryFile file(Fd(memfd_create("baton", MFD_CLOEXEC)));
  if (!file.fd_.valid()) return Failed("memfd_create");
  for (size_t written = 0; written < text.size();) {
    const ssize_t bytes = write(file.fd_.get(), text.data() + written, text.size() - written);
    if (bytes < 0) return Failed("write");
    written += static_cast<size_t>(bytes);
  }
  return file;
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

void MemoryFile::Replace(const MemoryFile& fresh) {
  // The number stays, and stands for another file from one moment to the next. Both are open, so
  // that only a signal can come between.
  while (dup3(fresh.fd_.get(), fd_.get(), O_CLOEXEC) < 0) {
    BATON_CHECK(errno == EINTR) << std::strerror(errno);
  }
}

}  // namespace baton::rpc
