#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::tls {

// Where a process has its certificate, in PEM.
struct CertificateFiles {
  std::string certificate{};  // the process's own first, then those between it and its CA
  std::string key{};          // of the first certificate, not encrypted
  std::string ca{};           // what signs peers' certificates; empty: peers show none

  bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

// What they hold; `ca` is empty if no file is named.
struct CertificateTexts {
  std::string certificate;
  std::string key;
  std::string ca;
};

// Read, and good enough for peers to accept. NOT_FOUND, DATA_LOSS: see ReadFile. INVALID_ARGUMENT,
// naming the file: not a regular file, nothing in PEM, an encrypted key or that of another
// certificate, a certificate that is not valid yet or no longer, or may not be a server's, or with
// which no TLS handshake is possible (a key or a digest that is too weak, a curve that TLS does not
// use; it is tried), more than 1 MiB. Where there is a CA, servers and clients must both be able to
// show the certificate, and the CA must have signed it, no weaker.
absl::StatusOr<CertificateTexts> ReadCertificateFiles(const CertificateFiles& files);

}  // namespace baton::tls
