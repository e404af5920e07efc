#pragma once

#include <array>
#include <atomic>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace baton::rpc {

// A TCP relay for one connection to a port of this machine, which can fall silent in both
// directions without closing: a network partition. Destruction closes both ends.
class Relay {
 public:
  explicit Relay(int target_port) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    EXPECT_EQ(listen(listener_, 1), 0);
    thread_ = std::thread([this, target_port] { Run(target_port); });
  }

  ~Relay() {
    stopping_ = true;
    thread_.join();
    close(listener_);
  }

  int port() const { return port_; }
  void Freeze() { frozen_ = true; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run(int target_port) {
    pollfd waiting{listener_, POLLIN, 0};
    while (!stopping_ && poll(&waiting, 1, kPollMs) <= 0) {
    }
    if (stopping_) return;
    const int client = accept(listener_, nullptr, nullptr);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(target_port);
    EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    while (!stopping_) {
      std::array<pollfd, 2> ends = {pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
      if (frozen_) {
        poll(nullptr, 0, kPollMs);
      } else if (poll(ends.data(), ends.size(), kPollMs) > 0 &&
                 !(Forward(ends[0], server) && Forward(ends[1], client))) {
        break;
      }
    }
    close(client);
    close(server);
  }

  static bool Forward(const pollfd& from, int to) {
    if ((from.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return true;
    char buffer[4096];
    const ssize_t size = read(from.fd, buffer, sizeof(buffer));
    return size > 0 && send(to, buffer, static_cast<size_t>(size), MSG_NOSIGNAL) == size;
  }

  static constexpr int kPollMs = 20;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> frozen_ = false;
  std::thread thread_;
};

}  // namespace baton::rpc
