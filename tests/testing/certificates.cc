#include "tests/testing/certificates.h"

#include <atomic>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"

namespace baton::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Bytes = std::unique_ptr<BIO, decltype(&BIO_free)>;

Key NewKey(const std::string& kind) {
  absl::string_view size = kind;
  int bits = 0;
  const bool rsa = absl::ConsumePrefix(&size, "RSA-") && absl::SimpleAtoi(size, &bits);
  Key key(rsa ? EVP_RSA_gen(bits) : EVP_EC_gen(kind.c_str()), EVP_PKEY_free);
  BATON_CHECK(key != nullptr) << kind;
  return key;
}

std::string Take(const Bytes& bytes) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bytes.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  const Bytes bytes(BIO_new(BIO_s_mem()), BIO_free);
  BATON_CHECK(PEM_write_bio_X509(bytes.get(), certificate) == 1);
  return Take(bytes);
}

std::string PemOf(EVP_PKEY* key) {
  const Bytes bytes(BIO_new(BIO_s_mem()), BIO_free);
  BATON_CHECK(PEM_write_bio_PrivateKey(bytes.get(), key, nullptr, nullptr, 0, nullptr, nullptr));
  return Take(bytes);
}

void AddExtension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, nullptr, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  BATON_CHECK(extension != nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Not yet signed; its issuer is still to be named.
Certificate Draft(EVP_PKEY* key, const std::string& name, std::chrono::seconds valid) {
  static std::atomic<int> serial = 0;
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -2 * 86400);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid.count());
  X509_set_pubkey(certificate.get(), key);
  // CAs of one name would be taken for each other.
  const std::string common_name = absl::StrCat(name, " ", serial.load());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  return certificate;
}

}  // namespace

struct CertificateAuthority::Impl {
  explicit Impl(const std::string& kind) : key(NewKey(kind)) {}

  Key key;
  Certificate certificate = Draft(key.get(), "CA", std::chrono::hours(1));
};

CertificateAuthority::CertificateAuthority(const std::string& key)
    : impl_(std::make_unique<Impl>(key)) {
  X509* own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, NID_key_usage, "critical,keyCertSign");
  BATON_CHECK(X509_sign(own, impl_->key.get(), EVP_sha256()) > 0);
}

CertificateAuthority::~CertificateAuthority() = default;

tls::CertificateFiles CertificateAuthority::Issue(const std::filesystem::path& folder,
                                                  const Wanted& wanted) const {
  const Key key = NewKey(wanted.key);
  const Certificate certificate = Draft(key.get(), "baton", wanted.valid);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(impl_->certificate.get()));
  AddExtension(certificate.get(), NID_subject_alt_name, wanted.names);
  AddExtension(certificate.get(), NID_ext_key_usage, wanted.usage);
  if (!wanted.key_usage.empty()) {
    AddExtension(certificate.get(), NID_key_usage, wanted.key_usage);
  }
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), wanted.begins.count());
  const EVP_MD* const digest = EVP_get_digestbyname(wanted.digest.c_str());
  BATON_CHECK(X509_sign(certificate.get(), impl_->key.get(), digest) > 0);
  std::filesystem::create_directories(folder);
  const tls::CertificateFiles files = {
      .certificate = folder / "cert.pem", .key = folder / "key.pem", .ca = folder / "ca.pem"};
  WriteAtOnce(files.certificate, PemOf(certificate.get()));
  WriteAtOnce(files.key, PemOf(key.get()));
  WriteAtOnce(files.ca, Pem());
  return files;
}

std::string CertificateAuthority::Pem() const { return PemOf(impl_->certificate.get()); }

void Age(const tls::CertificateFiles& files) {
  for (const std::string& file : {files.certificate, files.key, files.ca}) {
    if (file.empty()) continue;
    const auto written = std::filesystem::last_write_time(file);
    std::filesystem::last_write_time(file, written - std::chrono::hours(1));
  }
}

void WriteAtOnce(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path beside = path.string() + ".new";
  std::ofstream(beside, std::ios::binary) << text;
  std::filesystem::rename(beside, path);
}

}  // namespace baton::testing
