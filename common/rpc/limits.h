#pragma once

#include <chrono>

// Limits that both ends of a connection have to agree on.

namespace baton::rpc {

// Largest message either side accepts: a transfer frame of 2 MiB, or a prompt of a million token
// ids, and their envelopes. gRPC's own default is 4 MiB as well; it is set so that it cannot drift.
inline constexpr int kMaxMessageBytes = 4 << 20;

// A ping after this much silence, whether calls run or not, and this long for its answer: a
// stopped, half-open or partitioned peer is noticed within the sum, 4 s. (A process that dies
// resets its connections at once.)
inline constexpr std::chrono::milliseconds kKeepaliveTime{2000};
inline constexpr std::chrono::milliseconds kKeepaliveTimeout{2000};

// Between attempts to connect to a peer that refuses.
inline constexpr std::chrono::milliseconds kReconnectMin{100};
inline constexpr std::chrono::milliseconds kReconnectMax{1000};
// One attempt, handshakes included; a peer that swallows packets costs this much before the next
// one, and a server keeps nobody longer who has not said what a client says first.
inline constexpr std::chrono::milliseconds kConnectTimeout{3000};

}  // namespace baton::rpc
