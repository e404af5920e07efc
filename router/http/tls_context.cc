#include "router/http/tls_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "common/status_macros.h"

namespace baton::router {
namespace {

namespace ssl = boost::asio::ssl;

absl::StatusOr<std::shared_ptr<ssl::context>> MakeContext(const tls::CertificateFiles& files,
                                                          const tls::CertificateTexts& texts) {
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
  std::unique_ptr<TlsContext> tls(new TlsContext);
  const auto publish = [self = tls.get(), files](const tls::CertificateTexts& texts) {
    return self->Publish(files, texts);
  };
  BATON_ASSIGN_OR_RETURN(tls->follower_, tls::CertificateFollower::Start(files, publish, clock));
  return tls;
}

absl::Status TlsContext::Publish(const tls::CertificateFiles& files,
                                 const tls::CertificateTexts& texts) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<ssl::context> context, MakeContext(files, texts));
  MutexLock lock(mutex_);
  current_ = std::move(context);
  return absl::OkStatus();
}

std::shared_ptr<ssl::context> TlsContext::Current() const {
  MutexLock lock(mutex_);
  return current_;
}

}  // namespace baton::router
