#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "boost/asio/async_result.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/stream.hpp"

namespace baton::tls {

// A connection that is read and written in the same way whether it is under TLS or not. Transport
// is an asynchronous stream of Asio's or Beast's. Of this one object, like of any such stream, one
// read and one write may be under way at a time.
template <typename Transport>
class Stream {
 public:
  using executor_type = typename Transport::executor_type;
  using Tls = boost::asio::ssl::stream<Transport&>;

  // Plain text.
  explicit Stream(Transport transport) : transport_(std::move(transport)) {}
  Stream(const Stream&) = delete;

  // Before anything is read or written: from now on under TLS, which begins with a handshake.
  Tls& Secure(std::shared_ptr<boost::asio::ssl::context> context) {
    context_ = std::move(context);
    return tls_.emplace(transport_, *context_);
  }
  // What was read of TLS is lost; the rest is plain text.
  void DropTls() { tls_.reset(); }

  Tls* tls() { return tls_ ? &*tls_ : nullptr; }  // null: plain text
  Transport& transport() { return transport_; }
  executor_type get_executor() { return transport_.get_executor(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::forward<decltype(handler)>(handler));
          } else {
            transport_.async_read_some(into, std::forward<decltype(handler)>(handler));
          }
        },
        token, buffers);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, const Buffers& from) {
          if (tls_) {
            tls_->async_write_some(from, std::forward<decltype(handler)>(handler));
          } else {
            transport_.async_write_some(from, std::forward<decltype(handler)>(handler));
          }
        },
        token, buffers);
  }

 private:
  Transport transport_;
  std::shared_ptr<boost::asio::ssl::context> context_;  // of `tls_`
  std::optional<Tls> tls_;
};

}  // namespace baton::tls
