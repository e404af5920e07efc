#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtransfer/shm/unix_socket.h"

namespace baton::kvtransfer::shm {

// A mapping of shared memory. Move-only.
class Mapping {
 public:
  Mapping() = default;
  static absl::StatusOr<Mapping> Create(const Fd& memory, size_t bytes, bool writable);
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// The memory that a sender's frames lie in, divided into slots of one frame: anonymous, so that it
// goes with the last process that has it, and sealed against shrinking, so that a peer that maps it
// cannot be taken down. Slots take memory from their first use until they are freed. Not
// thread-safe.
class Arena {
 public:
  static absl::StatusOr<Arena> Create(size_t slots);

  // RESOURCE_EXHAUSTED when every slot is taken.
  absl::StatusOr<std::span<std::byte>> Take();
  // `slot` as it was taken.
  void Free(std::span<const std::byte> slot);

  size_t OffsetOf(std::span<const std::byte> frame) const {
    return static_cast<size_t>(frame.data() - mapping_.bytes().data());
  }
  size_t bytes() const { return mapping_.bytes().size(); }
  size_t taken() const { return slots_ - free_.size(); }
  uint64_t nonce() const { return nonce_; }
  // To be passed to peers: it cannot be written through.
  const Fd& read_only() const { return read_only_; }

 private:
  Arena() = default;

  size_t slots_ = 0;
  uint64_t nonce_ = 0;  // also at the start of the memory
  Fd memory_;
  Fd read_only_;
  Mapping mapping_;
  std::vector<size_t> free_;  // slot numbers
};

}  // namespace baton::kvtransfer::shm
