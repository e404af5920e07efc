// Any bytes as what a client sends on one connection: the server answers or closes, and serves on.
// Bodies are read as requests of OpenAI's API.

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "router/http/server.h"
#include "router/openai/request.h"

using namespace baton::router;  // NOLINT(google-build-using-namespace)

namespace {

class Parser final : public HttpHandler {
 public:
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    const auto outcome = request.path == "/v1/completions" ? ParseCompletion(request.body)
                                                           : ParseChatCompletion(request.body);
    const auto* error = std::get_if<ApiError>(&outcome);
    reply->Respond(error != nullptr ? ErrorResponse(*error) : HttpResponse{.body = "{}"});
  }
  HttpResponse Refuse(const HttpRequest&, int status, const std::string& message) override {
    return ErrorResponse({.http_status = status, .message = message});
  }
};

int ServerPort() {
  static Parser parser;
  static prometheus::Gauge connections;
  static const std::unique_ptr<HttpServer> server = *HttpServer::Start(
      {.listen = "127.0.0.1:0", .threads = 1, .max_header_bytes = 1024}, &parser, &connections);
  return server->port();
}

// libFuzzer's timer interrupts any call of this thread; a connection is made all the same.
void Connect(int client, const sockaddr_in& address) {
  int error = connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
                  ? 0
                  : errno;
  if (error == EINTR) {
    pollfd made{.fd = client, .events = POLLOUT, .revents = 0};
    while (poll(&made, 1, /*timeout=*/-1) < 0 && errno == EINTR) {
    }
    socklen_t size = sizeof(error);
    getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  BATON_CHECK(error == 0) << std::strerror(error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  BATON_CHECK(client >= 0) << std::strerror(errno);
  // A reset at the end: ports of closed connections would otherwise run out.
  const linger no_linger{.l_onoff = 1, .l_linger = 0};
  setsockopt(client, SOL_SOCKET, SO_LINGER, &no_linger, sizeof(no_linger));
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(ServerPort()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Connect(client, address);
  while (size > 0) {
    const ssize_t sent = send(client, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) break;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  shutdown(client, SHUT_WR);

  std::string answer;
  char bytes[4096];
  ssize_t received = 0;
  do {
    received = recv(client, bytes, sizeof(bytes), 0);
    if (received > 0) answer.append(bytes, received);
  } while (received > 0 || (received < 0 && errno == EINTR));
  BATON_CHECK(received == 0 || errno == ECONNRESET) << "no end: " << std::strerror(errno);
  BATON_CHECK(answer.empty() || answer.starts_with("HTTP/1.1 ")) << answer;
  close(client);
  return 0;
}
