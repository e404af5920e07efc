#include "common/tls/certificate_files.h"

#include <memory>

#include <sys/stat.h>

#include "common/read_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::tls {
namespace {

using ::baton::testing::CertificateAuthority;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::baton::testing::WriteAtOnce;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CertificateFilesTest : public ::testing::Test {
 protected:
  CertificateFilesTest() : files_(ca_.Issue(folder_)) {}
  ~CertificateFilesTest() override { std::filesystem::remove_all(folder_); }

  void ExpectRefused(const std::string& file, const std::string& why) const {
    EXPECT_THAT(ReadCertificateFiles(files_), StatusIs(absl::StatusCode::kInvalidArgument,
                                                       AllOf(HasSubstr(file), HasSubstr(why))));
  }

  const std::filesystem::path folder_ = testing::TestPath("certificate_files");
  CertificateAuthority ca_;
  CertificateFiles files_;
};

TEST_F(CertificateFilesTest, ACertificateItsKeyAndItsCaAreTaken) {
  EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
  files_.ca.clear();
  EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
}

TEST_F(CertificateFilesTest, AFileThatIsMissingOrNotPemIsNamed) {
  for (std::string CertificateFiles::*field :
       {&CertificateFiles::certificate, &CertificateFiles::key, &CertificateFiles::ca}) {
    const std::string path = files_.*field;
    files_.*field = path + ".missing";
    EXPECT_THAT(ReadCertificateFiles(files_),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(path + ".missing")));
    files_.*field = folder_ / "text";
    WriteAtOnce(folder_ / "text", "not PEM\n");
    ExpectRefused("text", "in PEM");
    files_.*field = path;
  }
}

// Of which some would never end, or never begin.
TEST_F(CertificateFilesTest, WhatIsNoRegularFileIsNotOpened) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = folder_ / "link";
  std::filesystem::create_symlink(pipe, link);
  for (std::string CertificateFiles::*field :
       {&CertificateFiles::certificate, &CertificateFiles::key, &CertificateFiles::ca}) {
    const std::string path = files_.*field;
    for (const std::string& other : {pipe, link, std::string("/dev/zero"), folder_.string()}) {
      files_.*field = other;
      ExpectRefused(other, "is not a regular file");
    }
    std::filesystem::remove(link);
    std::filesystem::create_symlink(path, link);
    files_.*field = link;
    EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
    std::filesystem::remove(link);
    std::filesystem::create_symlink(pipe, link);
    files_.*field = path;
  }
}

TEST_F(CertificateFilesTest, ABrokenSecondCertificateIsNoticed) {
  WriteAtOnce(files_.ca, ca_.Pem() + "-----BEGIN CERTIFICATE-----\nMIIB");
  ExpectRefused(files_.ca, "certificate 2 is broken");
}

TEST_F(CertificateFilesTest, TheKeyOfAnotherCertificateIsRefused) {
  files_.key = ca_.Issue(folder_ / "other").key;
  ExpectRefused(files_.key, "is not the key of");
}

TEST_F(CertificateFilesTest, AnEncryptedKeyIsRefusedWithoutAsking) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(files_.key.c_str(), "w"),
                                                       BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::string passphrase = "secret";
  ASSERT_EQ(
      PEM_write_bio_PKCS8PrivateKey(file.get(), key.get(), EVP_aes_128_cbc(), passphrase.data(),
                                    static_cast<int>(passphrase.size()), nullptr, nullptr),
      1);
  ASSERT_EQ(BIO_flush(file.get()), 1);
  ExpectRefused(files_.key, "encrypted");
}

TEST_F(CertificateFilesTest, AnExpiredCertificateIsRefused) {
  files_ = ca_.Issue(folder_, {.valid = std::chrono::seconds(-60)});
  ExpectRefused(files_.certificate, "has expired");
}

TEST_F(CertificateFilesTest, ACertificateThatIsNotValidYetIsRefused) {
  files_ = ca_.Issue(folder_, {.begins = std::chrono::seconds(60)});
  ExpectRefused(files_.certificate, "not valid yet");
  files_.ca.clear();
  ExpectRefused(files_.certificate, "not valid yet");
}

TEST_F(CertificateFilesTest, AFileThatIsTooLargeIsNotRead) {
  std::filesystem::resize_file(files_.key, uintmax_t{1} << 40);  // sparse
  ExpectRefused(files_.key, "more than 1048576 bytes");
}

TEST_F(CertificateFilesTest, WhatTheKeyMayNotBeUsedForIsSaid) {
  files_ = ca_.Issue(folder_, {.key_usage = "critical,keyCertSign"});
  ExpectRefused(files_.certificate, "its key usage or extended key usage");
}

TEST_F(CertificateFilesTest, TheCertificateMustDoForBothEndsOfAConnection) {
  files_ = ca_.Issue(folder_, {.usage = "clientAuth"});
  ExpectRefused(files_.certificate, "serverAuth");
  files_ = ca_.Issue(folder_, {.usage = "serverAuth"});
  ExpectRefused(files_.certificate, "clientAuth");
  files_.ca.clear();  // which only servers show
  EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
}

TEST_F(CertificateFilesTest, WithTheCertificateATlsHandshakeMustBePossible) {
  struct Case {
    CertificateAuthority::Wanted wanted;
    std::string why;
  };
  for (const Case& weak :
       {Case{{.key = "RSA-1024"}, "ee key too small"}, Case{{.digest = "SHA1"}, "ca md too weak"},
        Case{{.key = "secp256k1"}, "no shared cipher"}}) {
    files_ = ca_.Issue(folder_, weak.wanted);
    ExpectRefused(files_.certificate, "no TLS handshake is possible with it: " + weak.why);
    files_.ca.clear();
    ExpectRefused(files_.certificate, "no TLS handshake is possible with it: " + weak.why);
  }
  for (const char* key : {"RSA-2048", "P-384", "P-521"}) {
    files_ = ca_.Issue(folder_, {.key = key});
    EXPECT_THAT(ReadCertificateFiles(files_), IsOk()) << key;
  }
}

TEST_F(CertificateFilesTest, ACertificateShownAlongMustNotBeWeakEither) {
  const std::string own = *ReadFile(files_.certificate);
  const std::string weak = *ReadFile(ca_.Issue(folder_ / "weak", {.digest = "SHA1"}).certificate);
  WriteAtOnce(files_.certificate, own + weak);
  ExpectRefused(files_.certificate, "no TLS handshake is possible with it: ca md too weak");
  WriteAtOnce(files_.certificate, own + ca_.Pem());
  EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
}

TEST_F(CertificateFilesTest, TheCaMustHaveSignedIt) {
  WriteAtOnce(files_.ca, CertificateAuthority().Pem());
  ExpectRefused(files_.certificate, files_.ca);
  WriteAtOnce(files_.ca, CertificateAuthority().Pem() + ca_.Pem());
  EXPECT_THAT(ReadCertificateFiles(files_), IsOk());
}

TEST_F(CertificateFilesTest, TheCaMustNotBeWeakerThanPeersTake) {
  const CertificateAuthority weak("RSA-1024");
  files_ = weak.Issue(folder_);
  ExpectRefused(files_.certificate, "CA certificate key too weak");
}

}  // namespace
}  // namespace baton::tls
