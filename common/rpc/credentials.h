#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config.h"
#include "common/tls/certificate_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

// The one place that decides how gRPC connections are secured.

namespace baton::rpc {

// What both ends of a connection show; plain text unless loaded. Channels share connections only if
// they share this: a process loads it once, copies it, and keeps a copy as long as it has channels,
// since renewed files are followed no longer than that.
struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> client = grpc::InsecureChannelCredentials();
  std::shared_ptr<grpc::ServerCredentials> server = grpc::InsecureServerCredentials();
  std::string server_name = {};  // see ClusterTls
};

// Between the processes of a cluster.
struct ClusterTls {
  tls::CertificateFiles files{};
  // What clients look for in a server's certificate; empty: the host or IP address that they
  // connect to, which no certificate can say where addresses are given out anew all the time.
  std::string server_name{};
};

// --tls-cert-file, --tls-key-file, --tls-ca-file and --tls-server-name.
void BindClusterTls(ClusterTls& tls, ConfigParser& parser);

// Plain text if nothing is named. With all three, mutual TLS: servers take only clients that show a
// certificate of the CA, and clients only servers whose certificate is of the CA and has the name
// that they look for as a subject alternative name. INVALID_ARGUMENT when only one or
// two are named, or none but a server's name; errors of FollowedCertificate::Load. Renewed files
// are for new connections; those that stand are kept.
absl::StatusOr<Credentials> LoadCredentials(const ClusterTls& tls);

// Of a server whose clients show no certificate: `files` without a CA; the rest is as above.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerCredentials(
    const tls::CertificateFiles& files);

}  // namespace baton::rpc
