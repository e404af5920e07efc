#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "common/ids.h"

// What the two ends of transport shm say to each other, on a Unix socket of type SOCK_SEQPACKET in
// the abstract namespace. Both are processes of one machine: structs travel as they are in memory.
//
//   sender                        receiver
//   Hello + arena's descriptor -> maps the arena, reads the nonce that lies at its start
//                              <- Welcome with that nonce
//   Posted                     -> copies the records out of the arena, verifies them on the way
//                              <- Answer, in the same order, then the text of its detail
//
// Neither waits for the other: Posted may follow Hello at once. A message of another size, kind or
// version ends the connection, as does an end of either process. A Hello of another version is
// answered all the same, by a Welcome without a nonce, so that the sender can name both versions.

namespace baton::kvtransfer::shm {

// To be raised when messages change, or what either end expects of the other: frames of at most
// kMaxFrameBytes, no more of them than kCredit.
inline constexpr uint32_t kVersion = 2;
// The arena's first page holds the nonce and nothing else.
inline constexpr size_t kHeaderBytes = 4096;
// Small enough that the frames in flight stay in the cache that both cores share.
inline constexpr size_t kMaxFrameBytes = size_t{512} << 10;
// Frames of one connection that may wait for an answer; their Posted fit any socket buffer.
inline constexpr int kCredit = 4;
inline constexpr size_t kMaxDetailBytes = 512;

enum class Kind : uint32_t { kHello = 1, kWelcome, kPosted, kAnswer };

struct Hello {
  Kind kind = Kind::kHello;
  uint32_t version = kVersion;
  uint64_t arena_bytes = 0;
};

struct Welcome {
  Kind kind = Kind::kWelcome;
  uint32_t version = kVersion;
  uint64_t nonce = 0;
};

struct Posted {
  Kind kind = Kind::kPosted;
  uint32_t bytes = 0;
  uint64_t offset = 0;  // in the arena
  uint64_t post = 0;    // the sender's, repeated in the answer
};

struct Answer {
  Kind kind = Kind::kAnswer;
  uint32_t verdict = 0;  // FrameVerdict
  uint64_t post = 0;
};

// Names the receiver of one process; another process, also at the same address, has another. Only
// processes that share its network namespace can connect.
inline std::string Endpoint(Incarnation receiver) {
  return absl::StrFormat("baton-kv-%016x", receiver);
}

}  // namespace baton::kvtransfer::shm
