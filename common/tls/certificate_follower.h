#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/file_watch.h"
#include "common/mutex.h"
#include "common/ticker.h"
#include "common/tls/certificate_files.h"

namespace baton::tls {

// Has certificate files published, and again when they have changed, within about a second and a
// half and on a thread of its own: handshakes wait for no disk. What is not good, or cannot be
// published, is logged once and tried again each second, for the reason may lie elsewhere (no file
// descriptors, a certificate that is valid from noon on). Thread-safe.
class CertificateFollower {
 public:
  // Called by one thread at a time. After an error what was published before must still be in use.
  using Publish = std::function<absl::Status(const CertificateTexts& texts)>;

  // Publishes before it returns: errors of ReadCertificateFiles and of `publish`. `clock` outlives
  // it.
  static absl::StatusOr<std::unique_ptr<CertificateFollower>> Start(
      const CertificateFiles& files, Publish publish, const Clock& clock = Clock::Real());

  // Looks now, if the last look was a second ago.
  void Look();

 private:
  CertificateFollower(const CertificateFiles& files, Publish publish, const Clock& clock);
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CertificateFiles files_;
  const Publish publish_;
  Mutex mutex_;
  FileWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace baton::tls
