#include "common/rpc/channel.h"

#include "common/rpc/callback_threads.h"
#include "common/rpc/library_log.h"
#include "common/rpc/limits.h"
#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace baton::rpc {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, ChannelKind kind,
                                           const Credentials& credentials) {
  KeepCallbackThreads();
  QuietLibraryLog();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);

  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTime.count());
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout.count());
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);

  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMin.count());
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMax.count());
  // Despite its name the limit of a single attempt, which is where gRPC uses it.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeout.count());

  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (!credentials.server_name.empty()) {
    arguments.SetSslTargetNameOverride(credentials.server_name);
  }
  if (kind == ChannelKind::kBulk) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, credentials.client, arguments);
}

}  // namespace baton::rpc
