#include <cerrno>
#include <cstring>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/router/http/server_fixture.h"

namespace baton::router {
namespace {

// The end of what a client sends may come at any moment of the answer; about one in a thousand came
// when nobody looked, and the connection stayed.
TEST_F(HttpServerTest, AConnectionEndsAfterItsAnswerWheneverTheClientClosesItsSide) {
  Start();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  constexpr std::string_view kRequest =
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
  for (int i = 0; i < 3000; ++i) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    // A reset at the end, or ports would run out.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(client, kRequest.data(), kRequest.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(kRequest.size()));
    usleep(static_cast<useconds_t>(i % 150));
    shutdown(client, SHUT_WR);
    char bytes[1024];
    ssize_t received = 0;
    do {
      received = recv(client, bytes, sizeof(bytes), 0);
    } while (received > 0);
    ASSERT_EQ(received, 0) << "connection " << i << ": " << std::strerror(errno);
    close(client);
  }
}

}  // namespace
}  // namespace baton::router
