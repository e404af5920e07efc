#pragma once

#include <cstdint>

namespace baton::rpc {

// Version of what a router asks of workers: DecodeGenerateRequest and all that is in it. A worker
// tells the one it was built with in GetInfo, and a router uses none of an older one: what that
// does not know it would pass over, and answer as if it had not been asked for. A newer one has
// everything that an older router can ask.
// 0: a worker that tells none. 1: with penalties and biases in SamplingParams.
inline constexpr uint32_t kRequestProtocol = 1;

}  // namespace baton::rpc
