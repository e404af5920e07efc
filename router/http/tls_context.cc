#include "router/http/tls_context.h"

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "common/log.h"
#include "common/status_macros.h"

namespace baton::router {
namespace {

namespace ssl = boost::asio::ssl;

absl::StatusOr<std::shared_ptr<ssl::context>> MakeContext(const tls::CertificateFiles& files) {
  BATON_ASSIGN_OR_RETURN(const tls::CertificateTexts texts, tls::ReadCertificateFiles(files));
  boost::system::error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->use_certificate_chain(boost::asio::buffer(texts.certificate), error);
  if (!error) {
    context->use_private_key(boost::asio::buffer(texts.key), ssl::context::pem, error);
  }
  if (!error) return context;
  return absl::InvalidArgumentError(absl::StrCat(files.certificate, ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const tls::CertificateFiles& files,
                                                             const Clock& clock) {
  std::unique_ptr<TlsContext> tls(new TlsContext(files, clock));
  MutexLock lock(tls->mutex_);
  BATON_ASSIGN_OR_RETURN(tls->current_, MakeContext(files));
  return tls;
}

std::shared_ptr<ssl::context> TlsContext::Current() {
  MutexLock lock(mutex_);
  if (!watch_.Changed()) return current_;
  if (absl::StatusOr<std::shared_ptr<ssl::context>> renewed = MakeContext(files_); renewed.ok()) {
    current_ = *std::move(renewed);
    spdlog::info("{}: new connections show the renewed certificate", files_.certificate);
  } else {
    spdlog::error("the certificate stays as it was: {}", renewed.status().ToString());
  }
  return current_;
}

}  // namespace baton::router
