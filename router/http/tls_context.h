#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/ssl/context.hpp"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/tls/certificate_files.h"
#include "common/tls/certificate_follower.h"

namespace baton::router {

// What an HTTPS server shows to its clients, of which it wants no certificate: TLS 1.2 or later.
// Files that have changed are read again within about two seconds; while they are not good, the
// certificate stays as it was. Thread-safe.
class TlsContext {
 public:
  // Errors of tls::ReadCertificateFiles. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const tls::CertificateFiles& files,
                                                          const Clock& clock = Clock::Real());

  // For a new connection.
  std::shared_ptr<boost::asio::ssl::context> Current() const;

 private:
  TlsContext() = default;
  absl::Status Publish(const tls::CertificateFiles& files, const tls::CertificateTexts& texts);

  mutable Mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> current_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<tls::CertificateFollower> follower_;
};

}  // namespace baton::router
