#include "tests/testing/http_client.h"

#include <cstdlib>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "openssl/err.h"

namespace baton::testing {

HttpClient::HttpClient(int port) {
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  BATON_CHECK(socket_ >= 0);
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BATON_CHECK(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

void HttpClient::StartTls(const std::string& ca_file) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BATON_CHECK(SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr) == 1) << ca_file;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  tls_ = SSL_new(context);
  SSL_CTX_free(context);
  SSL_set_fd(tls_, socket_);
  if (SSL_connect(tls_) == 1) return;
  char reason[256];
  ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
  refused_ = reason;
  Close();
}

HttpClient::~HttpClient() { Close(); }

void HttpClient::EndSending() { SSL_shutdown(tls_); }

void HttpClient::Close() {
  ERR_clear_error();
  SSL_free(std::exchange(tls_, nullptr));
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void HttpClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = tls_ != nullptr
                             ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                             : send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // closed by the server; what it said can still be read
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void HttpClient::SendRequest(absl::string_view method, absl::string_view path,
                             absl::string_view body) {
  Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: test\r\n",
                    body.empty() ? "" : "Content-Type: application/json\r\n",
                    "Content-Length: ", body.size(), "\r\n\r\n", body));
}

bool HttpClient::Fill() {
  char bytes[4096];
  const ssize_t received = tls_ != nullptr ? SSL_read(tls_, bytes, sizeof(bytes))
                                           : recv(socket_, bytes, sizeof(bytes), 0);
  if (received <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(received));
  return true;
}

bool HttpClient::AtEnd() { return buffer_.empty() && !Fill(); }

std::string HttpClient::ReadUntil(absl::string_view text) {
  size_t found;
  while ((found = buffer_.find(text.data(), 0, text.size())) == std::string::npos) {
    if (!Fill()) return "";
  }
  std::string result = buffer_.substr(0, found + text.size());
  buffer_.erase(0, result.size());
  return result;
}

HttpClient::Response HttpClient::ReadHead() {
  Response response;
  const std::string head = ReadUntil("\r\n\r\n");
  if (head.empty()) return response;
  response.status = std::atoi(head.substr(head.find(' ') + 1).c_str());
  size_t begin = head.find("\r\n") + 2;
  while (begin < head.size() - 2) {
    const size_t end = head.find("\r\n", begin);
    const size_t colon = head.find(':', begin);
    const std::string value = head.substr(colon + 1, end - colon - 1);
    response.headers[absl::AsciiStrToLower(head.substr(begin, colon - begin))] =
        std::string(absl::StripAsciiWhitespace(value));
    begin = end + 2;
  }
  return response;
}

HttpClient::Response HttpClient::Read() {
  Response response = ReadHead();
  if (response.status == 0) return response;
  if (response.headers.contains("transfer-encoding")) {
    while (true) {
      const std::string size_line = ReadUntil("\r\n");
      if (size_line.empty()) return response;
      const size_t size = std::strtoul(size_line.c_str(), nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!Fill()) return response;
      }
      response.body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) break;
    }
  } else if (response.headers.contains("content-length")) {
    const size_t size = std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
    while (buffer_.size() < size) {
      if (!Fill()) return response;
    }
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else {
    while (Fill()) continue;
    response.body = std::exchange(buffer_, {});
  }
  response.complete = true;
  return response;
}

HttpClient::Response Fetch(int port, absl::string_view method, absl::string_view path,
                           absl::string_view body) {
  HttpClient client(port);
  client.SendRequest(method, path, body);
  return client.Read();
}

}  // namespace baton::testing
