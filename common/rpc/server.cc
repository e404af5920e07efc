#include "common/rpc/server.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/host_port.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/library_log.h"
#include "common/rpc/limits.h"
#include "common/rpc/message_memory.h"
#include "common/status_macros.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace baton::rpc {
namespace {

void EnableHealthAndReflection() {
  // Process-wide switches of gRPC, read by every builder from then on.
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);

  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTime.count());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout.count());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The default answers clients that ping this often with GOAWAY too_many_pings.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveTime.count() / 4);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kConnectTimeout.count());
  // Two processes on one port would each get some of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

struct GrpcServer::Impl {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::vector<std::string> service_names;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ServerOptions& options) {
  BATON_RETURN_IF_ERROR(ParseHostPort(options.listen).status()) << "cannot serve gRPC";
  EnableHealthAndReflection();
  KeepCallbackThreads();
  KeepMessageMemory();
  QuietLibraryLog();
  grpc::ServerBuilder builder;
  SetLimits(builder);
  builder.SetResourceQuota(
      grpc::ResourceQuota("server").Resize(static_cast<size_t>(options.max_buffered_bytes)));
  auto impl = std::make_unique<Impl>();
  builder.AddListeningPort(options.listen, options.credentials, &impl->port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve gRPC on \"", options.listen,
                     "\": not a host:port of this machine, or another process listens there"));
  }
  impl->credentials = options.credentials;
  impl->service_names = options.service_names;
  std::unique_ptr<GrpcServer> server(new GrpcServer(std::move(impl)));
  server->SetServing(options.serving);
  return server;
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::nanoseconds::zero()); }

int GrpcServer::port() const { return impl_->port; }

void GrpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = impl_->server->GetHealthCheckService();
  BATON_CHECK(health != nullptr);
  for (const std::string& name : impl_->service_names) health->SetServingStatus(name, serving);
  health->SetServingStatus("", serving);
}

void GrpcServer::Shutdown(std::chrono::nanoseconds grace) {
  impl_->server->GetHealthCheckService()->Shutdown();
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->server->Wait();
}

}  // namespace baton::rpc
