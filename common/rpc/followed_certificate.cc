#include "common/rpc/followed_certificate.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/status_macros.h"

namespace baton::rpc {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

constexpr std::chrono::milliseconds kLook{500};
constexpr unsigned kLibraryLooksSeconds = 1;  // the least it takes

std::string Identity(const tls::CertificateTexts& texts) { return texts.certificate + texts.key; }

}  // namespace

absl::StatusOr<std::shared_ptr<FollowedCertificate>> FollowedCertificate::Load(
    const tls::CertificateFiles& files) {
  BATON_ASSIGN_OR_RETURN(MemoryFile identity, MemoryFile::Create());
  BATON_ASSIGN_OR_RETURN(MemoryFile cas, MemoryFile::Create());
  std::shared_ptr<FollowedCertificate> followed(
      new FollowedCertificate(files, std::move(identity), std::move(cas)));
  BATON_ASSIGN_OR_RETURN(const tls::CertificateTexts texts, tls::ReadCertificateFiles(files));
  BATON_RETURN_IF_ERROR(followed->cas_.Replace(texts.ca));
  BATON_RETURN_IF_ERROR(followed->identity_.Replace(Identity(texts)));
  followed->provider_ = std::make_unique<FileWatcherCertificateProvider>(
      followed->identity_.path(), followed->identity_.path(),
      files.ca.empty() ? "" : followed->cas_.path(), kLibraryLooksSeconds);
  followed->ticker_ = std::make_unique<Ticker>(kLook, [self = followed.get()] { self->Follow(); });
  return followed;
}

FollowedCertificate::FollowedCertificate(const tls::CertificateFiles& files, MemoryFile identity,
                                         MemoryFile cas)
    : files_(files),
      watch_(files.ca.empty() ? std::vector{files.certificate, files.key}
                              : std::vector{files.certificate, files.key, files.ca}),
      identity_(std::move(identity)),
      cas_(std::move(cas)) {}

void FollowedCertificate::Follow() {
  if (!watch_.Changed()) return;
  const absl::StatusOr<tls::CertificateTexts> texts = tls::ReadCertificateFiles(files_);
  absl::Status taken = texts.status();
  if (taken.ok()) taken = cas_.Replace(texts->ca);
  if (taken.ok()) taken = identity_.Replace(Identity(*texts));
  if (taken.ok()) {
    spdlog::info("{}: new connections show the renewed certificate", files_.certificate);
  } else {
    spdlog::error("the certificate stays as it was: {}", taken.ToString());
  }
}

}  // namespace baton::rpc
