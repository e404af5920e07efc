#include "common/tls/certificate_follower.h"

#include <chrono>
#include <optional>
#include <vector>

#include "common/log.h"
#include "common/status_macros.h"

namespace baton::tls {
namespace {

constexpr std::chrono::milliseconds kLook{500};

}  // namespace

CertificateFollower::CertificateFollower(const CertificateFiles& files, Publish publish,
                                         const Clock& clock)
    : files_(files),
      publish_(std::move(publish)),
      watch_(files.ca.empty() ? std::vector{files.certificate, files.key}
                              : std::vector{files.certificate, files.key, files.ca},
             clock) {}

absl::StatusOr<std::unique_ptr<CertificateFollower>> CertificateFollower::Start(
    const CertificateFiles& files, Publish publish, const Clock& clock) {
  std::unique_ptr<CertificateFollower> follower(
      new CertificateFollower(files, std::move(publish), clock));
  {
    MutexLock lock(follower->mutex_);
    BATON_RETURN_IF_ERROR(follower->Read());
  }
  follower->ticker_ = std::make_unique<Ticker>(kLook, [self = follower.get()] { self->Look(); });
  return follower;
}

absl::Status CertificateFollower::Read() {
  BATON_ASSIGN_OR_RETURN(const CertificateTexts texts, ReadCertificateFiles(files_));
  return publish_(texts);
}

void CertificateFollower::Look() {
  MutexLock lock(mutex_);
  const std::optional<absl::Status> read = watch_.ReadIfChanged([this] { return Read(); });
  if (!read) return;
  if (read->ok()) {
    spdlog::info("{}: new connections show the renewed certificate", files_.certificate);
  } else {
    spdlog::error("the certificate stays as it was: {}", read->ToString());
  }
}

}  // namespace baton::tls
