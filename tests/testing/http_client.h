#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "openssl/ssl.h"

namespace baton::testing {

// One blocking HTTP connection to 127.0.0.1, for tests that care about bytes. Reading fails after
// ten seconds of silence, so that a server's bug fails a test instead of hanging it.
class HttpClient {
 public:
  struct Response {
    int status = 0;                              // 0: the connection ended before a response
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // chunks joined
    bool complete = false;                       // the body ended as announced
  };

  explicit HttpClient(int port);
  // The same under TLS, and the server must be known to the CA in the file. Without a handshake
  // everything fails; refused() says why.
  HttpClient(int port, const std::string& ca_file) : HttpClient(port) { StartTls(ca_file); }
  ~HttpClient();

  void StartTls(const std::string& ca_file);
  void Send(absl::string_view bytes);
  // A request with Content-Length and Host; the body's type is application/json.
  void SendRequest(absl::string_view method, absl::string_view path, absl::string_view body = "");
  Response Read();
  // Status line and headers only; the body is read by ReadUntil.
  Response ReadHead();
  // More of the stream, up to and including `text`; empty when it ended first.
  std::string ReadUntil(absl::string_view text);
  // True once the server has closed its side and nothing is left.
  bool AtEnd();
  void Close();
  // Of TLS: says that nothing more comes, and can go on reading.
  void EndSending();
  const std::string& refused() const { return refused_; }
  // Of TLS: the server has said that nothing more comes.
  bool ended() const { return (SSL_get_shutdown(tls_) & SSL_RECEIVED_SHUTDOWN) != 0; }

 private:
  bool Fill();

  int socket_ = -1;
  SSL* tls_ = nullptr;  // null: plain text
  std::string refused_;
  std::string buffer_;
};

// One request on a connection of its own.
HttpClient::Response Fetch(int port, absl::string_view method, absl::string_view path,
                           absl::string_view body = "");

}  // namespace baton::testing
