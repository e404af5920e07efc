#include "common/metrics_server.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

void Knock(uint32_t host, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = htons(static_cast<uint16_t>(port));
  (void)connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, const std::vector<std::weak_ptr<prometheus::Collectable>>& sources) {
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(listen);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on \"", listen,
                                               "\": not a host:port of this machine, or another "
                                               "process listens there (",
                                               error.what(), ")"));
  }
  for (const auto& source : sources) exposer->RegisterCollectable(source);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(exposer), listen));
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer,
                             const std::string& listen)
    : exposer_(std::move(exposer)), port_(exposer_->GetListeningPorts().at(0)) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  inet_pton(AF_INET, host.c_str(), &host_);  // anything else: stopping takes two seconds
}

// The exposer's accepting thread looks for its end every two seconds only, unless a connection
// wakes it.
MetricsServer::~MetricsServer() {
  std::jthread knocker([this](const std::stop_token& stopped) {
    while (!stopped.stop_requested()) {
      constexpr std::chrono::milliseconds kPause{5};
      std::this_thread::sleep_for(kPause);
      Knock(host_, port_);
    }
  });
  exposer_.reset();
}

}  // namespace baton
