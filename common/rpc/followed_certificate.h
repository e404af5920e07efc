#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/memory_file.h"
#include "common/tls/certificate_files.h"
#include "common/tls/certificate_follower.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace baton::rpc {

// Certificate files as a source for gRPC's TLS, which takes renewed ones within about two seconds.
// What is not good is logged, and the certificate stays as it was. gRPC follows files by itself,
// but ends the process over an empty key, and keeps new connections out while a certificate lies
// beside another's key. So it is shown files in memory, which change when everything has been
// checked. Thread-safe; must outlive what is secured by it.
class FollowedCertificate final : public grpc::experimental::CertificateProviderInterface {
 public:
  // Errors of tls::ReadCertificateFiles; RESOURCE_EXHAUSTED without memory or file descriptors.
  static absl::StatusOr<std::shared_ptr<FollowedCertificate>> Load(
      const tls::CertificateFiles& files);

  grpc_tls_certificate_provider* c_provider() override { return provider_->c_provider(); }

 private:
  FollowedCertificate(MemoryFile identity, MemoryFile cas);
  absl::Status Publish(const tls::CertificateTexts& texts);

  MemoryFile identity_;  // certificate and key, so that they change at once
  MemoryFile cas_;
  std::unique_ptr<grpc::experimental::FileWatcherCertificateProvider> provider_;
  std::unique_ptr<tls::CertificateFollower> follower_;
};

}  // namespace baton::rpc
