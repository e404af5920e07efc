#pragma once

#include <memory>
#include <string>

#include "common/rpc/credentials.h"
#include "grpcpp/channel.h"

namespace baton::rpc {

enum class ChannelKind {
  kControl,  // shares one connection per address with all other control channels of the process
  kBulk,     // has connections of its own, so that megabytes never delay a cancellation
};

// Connects lazily to host:port; never fails, calls do (UNAVAILABLE at once while the peer cannot be
// reached, unless they wait for ready). Keepalive and reconnect bounds are those of limits.h. Proxy
// settings of the environment are ignored, and no call is retried below the caller's feet: attempts
// are numbered above. Thread-safe; share one channel among all stubs to a peer.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, ChannelKind kind,
                                           const Credentials& credentials = {});

}  // namespace baton::rpc
