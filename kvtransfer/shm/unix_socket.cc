#include "kvtransfer/shm/unix_socket.h"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::kvtransfer::shm {
namespace {

constexpr int kBacklog = 128;

struct Address {
  explicit Address(const std::string& name) {
    BATON_CHECK(name.size() + 1 <= sizeof(address.sun_path)) << name;
    address.sun_family = AF_UNIX;
    // Abstract: the name begins with a zero byte and is not in the file system.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

Fd NewSocket() { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

absl::Status ErrnoStatus(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<Fd> Listen(const std::string& name) {
  Fd socket = NewSocket();
  const Address address(name);
  if (!socket.valid() || bind(socket.get(), address.get(), address.size) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return ErrnoStatus(absl::StrCat("listening on Unix socket ", name));
  }
  return socket;
}

absl::StatusOr<Fd> Connect(const std::string& name) {
  Fd socket = NewSocket();
  const Address address(name);
  if (!socket.valid() || connect(socket.get(), address.get(), address.size) != 0) {
    return ErrnoStatus(absl::StrCat("connecting to Unix socket ", name));
  }
  return socket;
}

absl::Status Send(const Fd& socket, std::span<const std::byte> message, int passed) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (passed >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(attached), &passed, sizeof(int));
  }
  if (sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return ErrnoStatus("sending on a Unix socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Received>> Receive(const Fd& socket, std::span<std::byte> message) {
  iovec part{message.data(), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_LEN(sizeof(int));  // the padding behind would let a second one in
  const ssize_t bytes = recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<Received>();
    return ErrnoStatus("receiving on a Unix socket");
  }
  Received received{static_cast<size_t>(bytes), Fd()};
  const cmsghdr* attached = CMSG_FIRSTHDR(&header);
  if (attached != nullptr && attached->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(attached), sizeof(int));
    received.passed = Fd(fd);
  }
  if (bytes == 0) return absl::UnavailableError("the peer has closed the Unix socket");
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::UnavailableError("a message on a Unix socket is too long");
  }
  return std::optional<Received>(std::move(received));
}

}  // namespace baton::kvtransfer::shm
