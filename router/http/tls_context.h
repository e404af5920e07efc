#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "boost/asio/ssl/context.hpp"
#include "common/clock.h"
#include "common/file_watch.h"
#include "common/mutex.h"
#include "common/tls/certificate_files.h"

namespace baton::router {

// What an HTTPS server shows to its clients, of which it wants no certificate: TLS 1.2 or later.
// Files that have changed are read again within a second or so; if they are not good, that is
// logged and the certificate stays as it was. Thread-safe.
class TlsContext {
 public:
  // Errors of tls::ReadCertificateFiles. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const tls::CertificateFiles& files,
                                                          const Clock& clock = Clock::Real());

  // For a new connection.
  std::shared_ptr<boost::asio::ssl::context> Current();

 private:
  TlsContext(const tls::CertificateFiles& files, const Clock& clock)
      : files_(files), watch_({files.certificate, files.key}, clock) {}

  const tls::CertificateFiles files_;
  Mutex mutex_;
  FileWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<boost::asio::ssl::context> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
