#include "kvtransfer/shm/arena.h"

#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/ids.h"
#include "kvtransfer/shm/wire.h"

namespace baton::kvtransfer::shm {

absl::StatusOr<Mapping> Mapping::Create(const Fd& memory, size_t bytes, bool writable) {
  void* const at = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                        memory.get(), 0);
  if (at == MAP_FAILED) return ErrnoStatus(absl::StrCat("mapping ", bytes, " bytes"));
  return Mapping({static_cast<std::byte*>(at), bytes});
}

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

absl::StatusOr<Arena> Arena::Create(size_t slots) {
  Arena arena;
  arena.slots_ = slots;
  arena.nonce_ = NewIncarnation();  // as good a random number as any
  const size_t bytes = kHeaderBytes + slots * kMaxFrameBytes;
  arena.memory_ = Fd(memfd_create("baton-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena.memory_.valid() || ftruncate(arena.memory_.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(arena.memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(absl::StrCat("shared memory of ", bytes, " bytes"));
  }
  const std::string path = absl::StrCat("/proc/self/fd/", arena.memory_.get());
  arena.read_only_ = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!arena.read_only_.valid()) return ErrnoStatus(path);
  absl::StatusOr<Mapping> mapping = Mapping::Create(arena.memory_, bytes, /*writable=*/true);
  if (!mapping.ok()) return mapping.status();
  arena.mapping_ = *std::move(mapping);
  std::memcpy(arena.mapping_.bytes().data(), &arena.nonce_, sizeof(arena.nonce_));
  for (size_t slot = slots; slot > 0; --slot) arena.free_.push_back(slot - 1);
  return arena;
}

absl::StatusOr<std::span<std::byte>> Arena::Take() {
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_, " frames of shared memory are in use"));
  }
  const size_t slot = free_.back();
  free_.pop_back();
  return mapping_.bytes().subspan(kHeaderBytes + slot * kMaxFrameBytes, kMaxFrameBytes);
}

void Arena::Free(std::span<const std::byte> slot) {
  const size_t offset = OffsetOf(slot);
  BATON_CHECK(offset >= kHeaderBytes && (offset - kHeaderBytes) % kMaxFrameBytes == 0) << offset;
  free_.push_back((offset - kHeaderBytes) / kMaxFrameBytes);
  fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            kMaxFrameBytes);
}

}  // namespace baton::kvtransfer::shm
