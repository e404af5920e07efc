#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

struct CUstream_st;

namespace baton::kernels {

// Processes that exchange device memory through NCCL (nccl_library.h). Errors are text; empty means
// none.
class Communicator {
 public:
  using Id = std::array<char, 128>;

  // What the ranks of one communicator have in common; made by one of them.
  static std::string MakeId(Id& id);
  // Waits for all ranks, each on the current device of its thread.
  static std::string Create(const Id& id, int rank, int ranks, std::optional<Communicator>& made);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  // Does not wait for the others; what is under way on the device is given up.
  ~Communicator();

  // What goes to a rank, and what comes from it.
  struct Piece {
    const void* to = nullptr;
    int64_t to_bytes = 0;
    void* from = nullptr;
    int64_t from_bytes = 0;
  };
  // One piece for every rank, in their order; that of this rank is left alone. All ranks issue the
  // same exchanges in the same order. Returns when it is in the stream; the first one may take a
  // while.
  std::string Exchange(std::span<const Piece> pieces, CUstream_st* stream);
  // What has gone wrong since, on the device or with a peer. Any thread.
  std::string Health();

 private:
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kernels
