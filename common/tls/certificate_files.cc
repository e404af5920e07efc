#include "common/tls/certificate_files.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

namespace baton::tls {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

template <auto Free>
struct Deleter {
  template <typename Object>
  void operator()(Object* object) const {
    Free(object);
  }
};
template <typename Object, auto Free>
using Owned = std::unique_ptr<Object, Deleter<Free>>;
using Certificate = Owned<X509, X509_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Bytes = Owned<BIO, BIO_free>;
using Context = Owned<SSL_CTX, SSL_CTX_free>;
using Connection = Owned<SSL, SSL_free>;

void FreeStack(STACK_OF(X509) * stack) { sk_X509_free(stack); }  // a macro
using Stack = Owned<STACK_OF(X509), FreeStack>;

Bytes Reader(const std::string& text) {
  return Bytes(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  ERR_clear_error();  // said in our words
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// `path` is where the text comes from.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& path,
                                                           const std::string& text) {
  const Bytes reader = Reader(text);
  std::vector<Certificate> certificates;
  while (X509* next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  // The end of the file is an error like any other, unless it comes in the middle of something.
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (certificates.empty()) return Invalid(path, " holds no certificate in PEM");
  if (!ended) return Invalid(path, ": certificate ", certificates.size() + 1, " is broken");
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<Key> ParseKey(const std::string& path, const std::string& text) {
  bool encrypted = false;
  const auto no_passphrase = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  Key key(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, no_passphrase, &encrypted));
  if (encrypted) return Invalid(path, " is encrypted, which no server can use without asking");
  if (key == nullptr) return Invalid(path, " holds no private key in PEM");
  return key;
}

// Of one end of the trial below, as servers have it: the library's own security level, TLS 1.2 on.
Context NewContext(const SSL_METHOD* method) {
  Context context(SSL_CTX_new(method));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  return context;
}

Connection NewConnection(SSL_CTX* context, Bytes bytes) {
  Connection connection(SSL_new(context));
  BIO* const both_ways = bytes.release();
  SSL_set_bio(connection.get(), both_ways, both_ways);
  return connection;
}

bool ShowsCertificate(SSL_CTX* context, const std::vector<Certificate>& shown, EVP_PKEY* key) {
  if (SSL_CTX_use_certificate(context, shown[0].get()) != 1) return false;
  if (SSL_CTX_use_PrivateKey(context, key) != 1) return false;
  for (size_t i = 1; i < shown.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, shown[i].get()) != 1) return false;
  }
  return true;
}

// Has both ends talk until they are done or one of them, of which the library's error is, gives up.
bool ShakeHands(SSL_CTX* server_context) {
  const Context client_context = NewContext(TLS_client_method());
  BIO* client_end = nullptr;
  BIO* server_end = nullptr;
  BIO_new_bio_pair(&client_end, 0, &server_end, 0);
  const Connection client = NewConnection(client_context.get(), Bytes(client_end));
  const Connection server = NewConnection(server_context, Bytes(server_end));
  SSL_set_connect_state(client.get());
  SSL_set_accept_state(server.get());
  for (SSL *next = client.get(), *other = server.get();
       !SSL_is_init_finished(client.get()) || !SSL_is_init_finished(server.get());
       std::swap(next, other)) {
    const int done = SSL_do_handshake(next);
    const int error = SSL_get_error(next, done);
    if (done != 1 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
  }
  return true;
}

// The library knows keys, curves and digests that it does not use for TLS, and says so only to
// those who connect: by then it is too late to keep the certificate before this one.
absl::Status TryHandshake(const CertificateFiles& files, const std::vector<Certificate>& shown,
                          EVP_PKEY* key) {
  ERR_clear_error();  // the reason is to be that of what follows
  const Context server = NewContext(TLS_server_method());
  if (ShowsCertificate(server.get(), shown, key) && ShakeHands(server.get())) {
    return absl::OkStatus();
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  return Invalid(files.certificate, ": no TLS handshake is possible with it: ",
                 reason != nullptr ? reason : "unknown reason");
}

// As peers will verify it, with the certificates that are shown along with it.
absl::Status VerifyChain(const CertificateFiles& files, const std::vector<Certificate>& shown,
                         const std::vector<Certificate>& cas) {
  const Owned<X509_STORE, X509_STORE_free> trusted(X509_STORE_new());
  for (const Certificate& ca : cas) X509_STORE_add_cert(trusted.get(), ca.get());
  const Stack between(sk_X509_new_null());
  for (size_t i = 1; i < shown.size(); ++i) sk_X509_push(between.get(), shown[i].get());
  const Owned<X509_STORE_CTX, X509_STORE_CTX_free> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), trusted.get(), shown[0].get(), between.get());
  X509_VERIFY_PARAM_set_auth_level(
      X509_STORE_CTX_get0_param(context.get()),
      SSL_CTX_get_security_level(NewContext(TLS_client_method()).get()));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  return Invalid(files.certificate, " is not what ", files.ca,
                 " vouches for: ", X509_verify_cert_error_string(error));
}

constexpr char kUsage[] = ": its key usage or extended key usage is not that of ";

absl::Status Check(const CertificateFiles& files, const CertificateTexts& texts) {
  BATON_ASSIGN_OR_RETURN(const std::vector<Certificate> shown,
                         ParseCertificates(files.certificate, texts.certificate));
  BATON_ASSIGN_OR_RETURN(const Key key, ParseKey(files.key, texts.key));
  X509* own = shown[0].get();
  if (X509_check_private_key(own, key.get()) != 1) {
    return Invalid(files.key, " is not the key of the certificate in ", files.certificate);
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
    return Invalid(files.certificate, ": the certificate is not valid yet");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    return Invalid(files.certificate, ": the certificate has expired");
  }
  if (X509_check_purpose(own, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return Invalid(files.certificate, kUsage, "servers (serverAuth)");
  }
  BATON_RETURN_IF_ERROR(TryHandshake(files, shown, key.get()));
  if (files.ca.empty()) return absl::OkStatus();
  if (X509_check_purpose(own, X509_PURPOSE_SSL_CLIENT, 0) != 1) {
    return Invalid(files.certificate, kUsage, "clients (clientAuth)");
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<Certificate> cas, ParseCertificates(files.ca, texts.ca));
  return VerifyChain(files, shown, cas);
}

}  // namespace

absl::StatusOr<CertificateTexts> ReadCertificateFiles(const CertificateFiles& files) {
  CertificateTexts texts;
  BATON_ASSIGN_OR_RETURN(texts.certificate, ReadRegularFile(files.certificate, kMaxFileBytes));
  BATON_ASSIGN_OR_RETURN(texts.key, ReadRegularFile(files.key, kMaxFileBytes));
  if (!files.ca.empty()) {
    BATON_ASSIGN_OR_RETURN(texts.ca, ReadRegularFile(files.ca, kMaxFileBytes));
  }
  BATON_RETURN_IF_ERROR(Check(files, texts));
  return texts;
}

}  // namespace baton::tls
