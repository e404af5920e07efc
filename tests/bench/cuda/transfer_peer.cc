#include "tests/bench/cuda/transfer_peer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "common/rpc/server.h"
#include "kernels/runtime/device.h"
#include "kvtransfer/device_lane/fabrics.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/shm/shm_service.h"
#include "kvtransfer/shm/unix_socket.h"
#include "tests/bench/cuda/flash_cache.h"

namespace baton::kvtransfer {
namespace {

class Decode {
 public:
  explicit Decode(int64_t max_tokens) : cache_(max_tokens, /*order=*/2) {
    auto server = rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                                          .services = {transfer_.service()},
                                          .service_names = {"baton.v1.Transfer"}});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    auto shm = ShmService::Start(receiver_.get(), incarnation_);
    BATON_CHECK(shm.ok()) << shm.status();
    shm_ = *std::move(shm);
    for (const char* name : {"cuda_ipc", "nccl"}) {
      auto fabric = MakeFabric(name);
      if (!fabric.ok()) {
        std::cerr << fabric.status() << std::endl;
        continue;
      }
      auto listener = shm::Listen(UnixLaneEndpoint(name, incarnation_));
      auto lanes = LaneService::Start(fabric->get(), receiver_.get(), *std::move(listener));
      BATON_CHECK(lanes.ok()) << lanes.status();
      fabrics_[name] = *std::move(fabric);
      transfer_.ServeLanes(name, lanes->get());
      lanes_.push_back(*std::move(lanes));
    }
    Say(absl::StrCat("ready ", incarnation_, " ", server_->port()));
  }
  ~Decode() { server_->Shutdown(std::chrono::seconds(1)); }

  void OnLine(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    uint64_t first = 0;
    uint64_t second = 0;
    words >> verb >> first >> second;
    if (verb == "expect") {
      Expect(first, static_cast<int64_t>(second));
    } else if (verb == "compare") {
      Say(cache_.Compare(static_cast<int64_t>(first), second));
    } else if (verb == "raw") {
      Raw(first, second);
    } else {
      Say("unknown: " + line);
    }
  }

 private:
  void Say(const std::string& line) {
    MutexLock lock(mutex_);
    std::cout << line << std::endl;
  }

  void Expect(uint64_t request, int64_t tokens) {
    LandingSpec spec;
    spec.key = {
        .attempt = {.request = {1, request}, .attempt = 1}, .sender = 1, .receiver = incarnation_};
    spec.records = &cache_.records();
    spec.layout = cache_.layout();
    spec.tokens = tokens;
    spec.on_end = [this, request](const absl::Status& status) {
      Say(absl::StrCat("end ", request, " ", status.ToString()));
    };
    const absl::Status expected = receiver_->Expect(std::move(spec));
    Say(expected.ok() ? "expecting" : expected.ToString());
  }

  void Raw(uint64_t groups, uint64_t bytes) {
    auto memory = fabrics_.at("nccl")->Allocate(bytes);
    auto end = fabrics_.at("nccl")->ReceiverEnd(Fd(), 0);
    BATON_CHECK(memory.ok() && end.ok());
    auto link =
        (*end)(1, [this](const std::string& id) { Say("id " + absl::BytesToHexString(id)); });
    for (uint64_t i = 0; i < groups; ++i) link->Receive(i, memory->bytes);
    while (true) {
      const absl::StatusOr<uint64_t> done = link->Done();
      BATON_CHECK(done.ok()) << done.status();
      if (*done == groups) break;
    }
    Say("received");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the sender ends first
  }

  Mutex mutex_;  // of the output
  const Incarnation incarnation_ = NewIncarnation();
  engine::FlashCache cache_;
  TransferThread thread_;
  const std::unique_ptr<Receiver> receiver_ = MakeReceiver(&thread_);
  TransferService transfer_{receiver_.get(), &thread_};
  std::unique_ptr<rpc::GrpcServer> server_;
  std::unique_ptr<ShmService> shm_;
  std::map<std::string, std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<LaneService>> lanes_;
};

}  // namespace

int RunDecode(int64_t max_tokens) {
  Decode decode(max_tokens);
  for (std::string line; std::getline(std::cin, line);) decode.OnLine(line);
  return 0;
}

int DecodeCard() { return std::min(1, kernels::DeviceCount() - 1); }

Child::Child(const std::vector<std::string>& arguments, int card) {
  int to[2];
  int from[2];
  BATON_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  std::vector<char*> words = {const_cast<char*>("transfer_bench")};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const std::string shown = std::to_string(card);
  const bool shared = DecodeCard() == 0;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    setenv("CUDA_VISIBLE_DEVICES", shown.c_str(), 1);
    if (shared) setenv("NCCL_HOSTID", std::to_string(getpid()).c_str(), 1);
    execv("/proc/self/exe", words.data());
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(to_);
  close(from_);
}

DecodeProcess::DecodeProcess(int64_t max_tokens)
    : Child({"--decode", std::to_string(max_tokens)}, DecodeCard()) {
  std::istringstream words(Line());
  std::string ready;
  std::string port;
  words >> ready >> incarnation_ >> port;
  BATON_CHECK(ready == "ready") << "the decode process did not start";
  grpc_address_ = "127.0.0.1:" + port;
}

void Child::Say(const std::string& line) {
  const std::string text = line + "\n";
  BATON_CHECK(write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::string Child::Line() {
  while (true) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    const ssize_t got = read(from_, buffer, sizeof(buffer));
    if (got <= 0) return "";
    read_.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace baton::kvtransfer
