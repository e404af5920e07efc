#include "common/rpc/status.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"

namespace baton::rpc {
namespace {

constexpr std::string_view kTypePrefix = "type.googleapis.com/";

std::string FailureDetailUrl() {
  return std::string(kTypePrefix) + v1::FailureDetail::descriptor()->full_name();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::RpcStatus details;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any* detail = details.add_details();
    detail->set_type_url(std::string(url));
    detail->set_value(std::string(payload));
  });
  const auto code = static_cast<grpc::StatusCode>(status.code());
  if (details.details().empty()) return {code, std::string(status.message())};
  details.set_code(code);
  details.set_message(std::string(status.message()));
  return {code, std::string(status.message()), details.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::RpcStatus details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return result;
}

void AttachFailureDetail(const v1::FailureDetail& detail, absl::Status& status) {
  status.SetPayload(FailureDetailUrl(), absl::Cord(detail.SerializeAsString()));
}

std::optional<v1::FailureDetail> GetFailureDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(FailureDetailUrl());
  v1::FailureDetail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

void SetTimeout(grpc::ClientContext& context, std::chrono::nanoseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

std::optional<std::chrono::nanoseconds> RemainingTime(const grpc::ServerContextBase& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(deadline - std::chrono::system_clock::now(),
                                            std::chrono::nanoseconds::zero());
}

}  // namespace baton::rpc
