#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "common/tls/certificate_files.h"
#include "gtest/gtest.h"

namespace baton::testing {

// A certificate authority with a key of its own, for the length of a test.
class CertificateAuthority {
 public:
  // `key` as in Wanted.
  explicit CertificateAuthority(const std::string& key = "P-256");
  ~CertificateAuthority();

  struct Wanted {
    std::string names = "IP:127.0.0.1,DNS:localhost";  // subject alternative names
    std::string usage = "serverAuth,clientAuth";
    std::chrono::seconds valid = std::chrono::hours(1);     // from now; negative: it has expired
    std::chrono::seconds begins = std::chrono::hours(-48);  // from now
    std::string key_usage = {};                             // empty: any
    std::string key = "P-256";                              // a curve, or "RSA-" and bits
    std::string digest = "SHA256";                          // that the CA signs
  };
  // Writes cert.pem, key.pem (a new key each time) and ca.pem into `folder`, which is made if need
  // be, at once for whoever opens one of them.
  tls::CertificateFiles Issue(const std::filesystem::path& folder, const Wanted& wanted) const;
  tls::CertificateFiles Issue(const std::filesystem::path& folder) const {
    return Issue(folder, {});
  }

  // The CA's own certificate in PEM.
  std::string Pem() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes the files of an hour ago, so that what is written next is seen to be another, however soon.
void Age(const tls::CertificateFiles& files);

// Text to a file that is there whole or not at all.
void WriteAtOnce(const std::filesystem::path& path, const std::string& text);

}  // namespace baton::testing
