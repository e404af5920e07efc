#include "kvtransfer/grpc/handshake.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "spdlog/spdlog.h"

namespace baton::kvtransfer {
namespace {

// Values that do not fit must not wrap round to known ones.
template <typename Enum>
Enum FromWire(uint32_t value) {
  constexpr uint32_t kUnknown = 0xFF;
  return static_cast<Enum>(std::min(value, kUnknown));
}

}  // namespace

v1::Manifest ManifestToProto(const Manifest& manifest) {
  v1::Manifest proto;
  for (const auto& [name, value] : manifest.semantics) {
    v1::ManifestField* field = proto.add_semantics();
    field->set_name(name);
    field->set_value(value);
  }
  for (const StreamLayout& layout : manifest.layout.streams) {
    v1::StreamLayout* stream = proto.add_streams();
    stream->set_stream(static_cast<uint32_t>(layout.stream));
    stream->set_format(static_cast<uint32_t>(layout.format));
    stream->set_layers(layout.layers);
    stream->set_record_bytes(layout.record_bytes);
  }
  proto.set_page_tokens(manifest.page_tokens);
  proto.set_rollback_rows(manifest.rollback_rows);
  for (const std::string& transport : manifest.transports) proto.add_transports(transport);
  return proto;
}

Manifest ManifestFromProto(const v1::Manifest& proto) {
  Manifest manifest;
  for (const v1::ManifestField& field : proto.semantics()) {
    manifest.semantics.emplace_back(field.name(), field.value());
  }
  for (const v1::StreamLayout& stream : proto.streams()) {
    manifest.layout.streams.push_back({.stream = FromWire<CacheStream>(stream.stream()),
                                       .format = FromWire<RecordFormat>(stream.format()),
                                       .layers = stream.layers(),
                                       .record_bytes = stream.record_bytes()});
  }
  manifest.page_tokens = proto.page_tokens();
  manifest.rollback_rows = proto.rollback_rows();
  manifest.transports.assign(proto.transports().begin(), proto.transports().end());
  return manifest;
}

absl::StatusOr<v1::HandshakeResponse> AnswerHandshake(const Manifest& local,
                                                      const v1::HandshakeRequest& request,
                                                      const TransportProbe& probe) {
  const Manifest remote = ManifestFromProto(request.manifest());
  BATON_RETURN_IF_ERROR(CheckCompatible(local, remote)) << "handshake";
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> common, CommonTransports(local, remote));
  v1::HandshakeResponse response;
  *response.mutable_manifest() = ManifestToProto(local);
  std::string reasons;
  for (const std::string& transport : common) {
    const absl::Status status = probe(transport);
    if (status.ok()) {
      response.set_transport(transport);
      return response;
    }
    v1::RefusedTransport* refused = response.add_refused();
    refused->set_transport(transport);
    refused->set_reason(std::string(status.message()));
    absl::StrAppend(&reasons, "; ", transport, ": ", status.message());
  }
  return absl::FailedPreconditionError(absl::StrCat("no common transport works", reasons));
}

void CountTransports(const v1::HandshakeResponse& response, WorkerMetrics& metrics) {
  for (const v1::RefusedTransport& refused : response.refused()) {
    spdlog::warn("transport {} is not used, {} is: {}", refused.transport(), response.transport(),
                 refused.reason());
    metrics.transports_refused[TransportLabelOf(refused.transport())].Increment();
  }
  metrics.transports_chosen[TransportLabelOf(response.transport())].Increment();
}

}  // namespace baton::kvtransfer
