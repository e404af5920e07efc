#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/file_watch.h"
#include "common/rpc/memory_file.h"
#include "common/ticker.h"
#include "common/tls/certificate_files.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace baton::rpc {

// Certificate files as a source for gRPC's TLS, which takes renewed ones within about two seconds.
// What is not good is logged, and the certificate stays as it was: gRPC follows files by itself,
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
  FollowedCertificate(const tls::CertificateFiles& files, MemoryFile identity, MemoryFile cas);
  void Follow();

  const tls::CertificateFiles files_;
  FileWatch watch_;      // of the ticker's thread from the start on
  MemoryFile identity_;  // certificate and key, so that they change at once
  MemoryFile cas_;
  std::unique_ptr<grpc::experimental::FileWatcherCertificateProvider> provider_;
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace baton::rpc
