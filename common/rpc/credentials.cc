#include "common/rpc/credentials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/followed_certificate.h"
#include "common/status_macros.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace baton::rpc {
namespace {

using grpc::experimental::TlsChannelCredentialsOptions;
using grpc::experimental::TlsServerCredentialsOptions;

// gRPC keeps only its own part of a source.
template <typename Object>
std::shared_ptr<Object> KeepWith(std::shared_ptr<FollowedCertificate> source,
                                 std::shared_ptr<Object> object) {
  Object* const kept = object.get();
  return {kept, [source = std::move(source), object = std::move(object)](Object*) {}};
}

}  // namespace

void BindClusterTls(ClusterTls& tls, ConfigParser& parser) {
  parser.Add("tls-cert-file", &tls.files.certificate,
             "PEM file with the certificate that this process shows to others of the cluster, as "
             "server and as client; changes are followed. Empty: plain text");
  parser.Add("tls-key-file", &tls.files.key, "PEM file with its private key");
  parser.Add("tls-ca-file", &tls.files.ca,
             "PEM file with the CAs that must have signed the certificates of the others");
  parser.Add("tls-server-name", &tls.server_name,
             "what the certificate of a process that this one connects to must be for; empty: the "
             "host or IP address connected to");
}

absl::StatusOr<Credentials> LoadCredentials(const ClusterTls& tls) {
  const tls::CertificateFiles& files = tls.files;
  if (files.empty() && tls.server_name.empty()) return Credentials{};
  if (files.certificate.empty() || files.key.empty() || files.ca.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls-cert-file is '", files.certificate, "', tls-key-file '", files.key,
                     "' and tls-ca-file '", files.ca, "': give all three or none",
                     tls.server_name.empty() ? "" : ", and with tls-server-name all three"));
  }
  BATON_ASSIGN_OR_RETURN(const auto source, FollowedCertificate::Load(files));
  TlsServerCredentialsOptions server(source);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  TlsChannelCredentialsOptions client;
  client.set_certificate_provider(source);
  client.watch_root_certs();
  client.watch_identity_key_cert_pairs();
  return Credentials{.client = KeepWith(source, grpc::experimental::TlsCredentials(client)),
                     .server = KeepWith(source, grpc::experimental::TlsServerCredentials(server)),
                     .server_name = tls.server_name};
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerCredentials(
    const tls::CertificateFiles& files) {
  BATON_ASSIGN_OR_RETURN(const auto source, FollowedCertificate::Load(files));
  TlsServerCredentialsOptions server(source);
  server.watch_identity_key_cert_pairs();
  return KeepWith(source, grpc::experimental::TlsServerCredentials(server));
}

}  // namespace baton::rpc
