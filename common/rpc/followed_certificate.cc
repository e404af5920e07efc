#include "common/rpc/followed_certificate.h"

#include <utility>

#include "common/status_macros.h"

namespace baton::rpc {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

constexpr unsigned kLibraryLooksSeconds = 1;  // the least it takes

}  // namespace

absl::StatusOr<std::shared_ptr<FollowedCertificate>> FollowedCertificate::Load(
    const tls::CertificateFiles& files) {
  BATON_ASSIGN_OR_RETURN(MemoryFile identity, MemoryFile::Create());
  BATON_ASSIGN_OR_RETURN(MemoryFile cas, MemoryFile::Create());
  std::shared_ptr<FollowedCertificate> followed(
      new FollowedCertificate(std::move(identity), std::move(cas)));
  BATON_ASSIGN_OR_RETURN(followed->follower_,
                         tls::CertificateFollower::Start(
                             files, [self = followed.get()](const tls::CertificateTexts& texts) {
                               return self->Publish(texts);
                             }));
  followed->provider_ = std::make_unique<FileWatcherCertificateProvider>(
      followed->identity_.path(), followed->identity_.path(),
      files.ca.empty() ? "" : followed->cas_.path(), kLibraryLooksSeconds);
  return followed;
}

FollowedCertificate::FollowedCertificate(MemoryFile identity, MemoryFile cas)
    : identity_(std::move(identity)), cas_(std::move(cas)) {}

absl::Status FollowedCertificate::Publish(const tls::CertificateTexts& texts) {
  // Both or none: what can fail comes first.
  BATON_ASSIGN_OR_RETURN(const MemoryFile cas, MemoryFile::Create(texts.ca));
  BATON_ASSIGN_OR_RETURN(const MemoryFile identity,
                         MemoryFile::Create(texts.certificate + texts.key));
  cas_.Replace(cas);
  identity_.Replace(identity);
  return absl::OkStatus();
}

}  // namespace baton::rpc
