#pragma once

namespace baton::rpc {

// Keeps gRPC's callback threads until the process ends. gRPC ends them with the last channel or
// server that uses them, and when that one goes away inside a callback, as the channel of a call
// may that owns itself, a thread waits for itself and gRPC crashes. Everything here that makes
// channels or servers calls this first. Thread-safe, cheap after the first call.
//
// There are few of these threads (half the cores, 2 to 16) for all calls of the process: this is
// why a callback must not block.
void KeepCallbackThreads();

}  // namespace baton::rpc
