#include "engine/model/mmap_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/fd.h"

namespace baton::engine {

absl::StatusOr<MmapFile> MmapFile::Open(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (info.st_size == 0) return MmapFile({});
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  return MmapFile({static_cast<const std::byte*>(data), static_cast<size_t>(info.st_size)});
}

MmapFile::MmapFile(MmapFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MmapFile::~MmapFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace baton::engine
