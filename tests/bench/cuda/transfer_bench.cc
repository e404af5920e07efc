// Hand-offs of V4-Flash prompts between two processes whose caches lie in device memory, over each
// transport, beside what the machine does in the same run; then peers that are killed and stopped
// in the middle. The decode process has the second of two cards,
//   NCCL_NVLS_ENABLE=0 transfer_bench [transport...]
// or shares the only one:
//   NCCL_HOSTID=prefill NCCL_SOCKET_IFNAME=lo transfer_bench [threads] [transport...]
// The first hand-off of each transport is compared byte by byte.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"
#include "kvtransfer/device_lane/fabrics.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/device_lane/lane_transport.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/grpc/lane_stream.h"
#include "kvtransfer/grpc/transfer_client.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/shm/unix_socket.h"
#include "kvtransfer/shm/wire.h"
#include "tests/bench/cuda/flash_cache.h"
#include "tests/bench/cuda/transfer_peer.h"

namespace baton::kvtransfer {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kMaxTokens = 131'072;
constexpr int64_t kPrompts[] = {8'192, 32'768, kMaxTokens};
constexpr int kRuns = 9;
constexpr int64_t kCeilingBytes = int64_t{256} << 20;
constexpr size_t kRawGroups = 16;
constexpr size_t kRawBytes = size_t{32} << 20;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// --- ceilings, in bytes a second of one direction

template <typename Copy>
double Ceiling(Copy copy) {
  copy();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = SteadyClock::now();
    copy();
    seconds.push_back(Seconds(SteadyClock::now() - begin).count());
  }
  return kCeilingBytes / Median(seconds);
}

// By the decode process's card, as a receiver copies.
double DeviceCopy() {
  auto from = kernels::DeviceBuffer::Allocate(kCeilingBytes);
  const int card = DecodeCard();
  kernels::UseDevice(card);
  if (card != 0) kernels::CheckCuda(cudaDeviceEnablePeerAccess(0, 0), "cudaDeviceEnablePeerAccess");
  auto to = kernels::DeviceBuffer::Allocate(kCeilingBytes);
  kernels::Stream stream;
  const double ceiling = Ceiling([&] {
    kernels::CopyAsync(to->data(), from->data(), kCeilingBytes, stream.get());
    stream.Synchronize();
  });
  kernels::UseDevice(0);
  return ceiling;
}

double PinnedCopy() {
  auto from = kernels::DeviceBuffer::Allocate(kCeilingBytes);
  auto to = kernels::PinnedBuffer::Allocate(kCeilingBytes);
  kernels::Stream stream;
  return Ceiling([&] {
    kernels::CopyAsync(to->data(), from->data(), kCeilingBytes, stream.get());
    stream.Synchronize();
  });
}

double HostCopy() {
  std::vector<std::byte> from(kCeilingBytes, std::byte{1});
  std::vector<std::byte> to(kCeilingBytes);
  return Ceiling([&] { std::memcpy(to.data(), from.data(), from.size()); });
}

// A bare link of nccl between the two processes.
double NcclGroups(Fabric& fabric, DecodeProcess& decode) {
  auto memory = fabric.Allocate(kRawBytes);
  BATON_CHECK(memory.ok()) << memory.status();
  const std::string id = decode.Ask(absl::StrCat("raw ", kRawGroups, " ", kRawBytes));
  BATON_CHECK(absl::StartsWith(id, "id ")) << id;
  auto link = fabric.SenderEnd(*memory)(1, [](const std::string&) {});
  link->OnMessage(absl::HexStringToBytes(id.substr(3)));
  const auto wait_for = [&](uint64_t groups) {
    while (true) {
      const absl::StatusOr<uint64_t> done = link->Done();
      BATON_CHECK(done.ok()) << done.status();
      if (*done >= groups) return;
    }
  };
  link->Send(0, memory->bytes);
  wait_for(1);  // joined and connected
  const auto begin = SteadyClock::now();
  for (size_t i = 1; i < kRawGroups; ++i) link->Send(i, memory->bytes);
  wait_for(kRawGroups);
  const double seconds = Seconds(SteadyClock::now() - begin).count();
  BATON_CHECK(decode.Line() == "received");
  return (kRawGroups - 1) * kRawBytes / seconds;
}

// --- hand-offs

template <typename Move>
void Report(const std::string& name, int64_t bytes, int64_t tokens, double ceiling, int runs,
            Move move) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto begin = SteadyClock::now();
    move();
    times.push_back(Seconds(SteadyClock::now() - begin).count());
  }
  const double seconds = Median(times);
  const double rate = static_cast<double>(bytes) / seconds;
  const double goal = 1.1 * static_cast<double>(bytes) / ceiling + 1e-3;
  std::printf("%s: %7ld tokens %8.1f MB %9.2f ms %8.2f GB/s %5.1f %% of the ceiling; %s\n",
              name.c_str(), static_cast<long>(tokens), static_cast<double>(bytes) / 1e6,
              seconds * 1e3, rate / 1e9, 100 * rate / ceiling,
              seconds <= goal ? "within 1.1 x + 1 ms" : "above 1.1 x + 1 ms");
  std::fflush(stdout);
}

struct Target {
  uint64_t incarnation = 0;
  std::string grpc_address;
};

class Bench {
 public:
  Bench() : cache_(kMaxTokens, /*order=*/1) {}

  // Sends one prompt to a decode process that expects it, and goes on until it is killed.
  void SendOnce(const std::string& transport, const Target& target, uint64_t request) {
    if (!Choose(transport)) return;
    NewSender();
    request_ = request;
    const std::future<absl::Status> sent = Send(target, kMaxTokens);
    std::puts("sending");
    std::fflush(stdout);
    sent.wait();
    while (true) pause();
  }

  void Run(const std::string& transport) {
    if (!Choose(transport)) return;
    decode_ = std::make_unique<DecodeProcess>(kMaxTokens);
    if (fabric_ != nullptr) {
      const auto begin = SteadyClock::now();
      const absl::Status probed = ProbeLane(*fabric_, Lanes(), EndpointOf(Peer()));
      std::printf("%s: probe %s, %.0f ms\n", name_.c_str(), probed.ToString().c_str(), Ms(begin));
      if (!probed.ok()) return Stop();
    }
    NewSender();
    cache_.Fill(kPrompts[0], ++seed_);
    auto begin = SteadyClock::now();
    std::printf("%s: first hand-off %s", name_.c_str(), Move(kPrompts[0]).ToString().c_str());
    std::printf(", %.1f ms, %s\n", Ms(begin),
                decode_->Ask(absl::StrCat("compare ", kPrompts[0], " ", seed_)).c_str());
    const double ceiling = CeilingOf();
    for (const int64_t tokens : kPrompts) Measure(tokens, ceiling);
    Faults();
    Stop();
  }

 private:
  static double Ms(SteadyClock::time_point begin) {
    return Seconds(SteadyClock::now() - begin).count() * 1e3;
  }

  // False, and said so, when it is not to be had here.
  bool Choose(const std::string& transport) {
    name_ = transport;
    if (!IsDeviceTransport(name_)) return true;
    auto fabric = MakeFabric(name_);
    if (fabric.ok()) {
      fabric_ = *std::move(fabric);
    } else {
      std::printf("%s: %s\n", name_.c_str(), fabric.status().ToString().c_str());
    }
    return fabric.ok();
  }

  ConnectLane Lanes() const {
    if (name_ != "nccl") return ConnectUnixLane;
    return [](std::string_view name, const std::string& endpoint, const StagingMemory& own) {
      return ConnectGrpcLane(name, endpoint, own.bytes.size());
    };
  }
  Target Peer() const { return {decode_->incarnation(), decode_->grpc_address()}; }
  std::string EndpointOf(const Target& target) const {
    if (name_ == "grpc" || name_ == "nccl") return target.grpc_address;
    if (name_ == "shm") return shm::Endpoint(target.incarnation);
    return UnixLaneEndpoint(name_, target.incarnation);
  }

  void NewSender() {
    SenderOptions options;
    absl::StatusOr<std::unique_ptr<Transport>> transport =
        name_ == "grpc"  ? absl::StatusOr<std::unique_ptr<Transport>>(MakeGrpcTransport())
        : name_ == "shm" ? MakeShmTransport()
                         : MakeLaneTransport(fabric_.get(), Lanes());
    BATON_CHECK(transport.ok()) << transport.status();
    if (fabric_ != nullptr) options.frame_bytes = (*transport)->capabilities().max_frame_bytes;
    sender_ = MakeSender(options, *std::move(transport));
  }

  void Stop() {
    sender_.reset();
    decode_.reset();
    fabric_.reset();
  }

  std::future<absl::Status> Start(int64_t tokens) {
    Expect(tokens);
    return Send(Peer(), tokens);
  }

  void Expect(int64_t tokens) {
    const std::string expecting = decode_->Ask(absl::StrCat("expect ", ++request_, " ", tokens));
    BATON_CHECK(expecting == "expecting") << expecting;
  }

  std::future<absl::Status> Send(const Target& target, int64_t tokens) {
    auto ended = std::make_shared<std::promise<absl::Status>>();
    OutboundSpec spec;
    spec.key = {.attempt = {.request = {1, request_}, .attempt = 1},
                .sender = 1,
                .receiver = target.incarnation};
    spec.endpoint = EndpointOf(target);
    spec.records = &cache_.records();
    spec.layout = cache_.layout();
    spec.on_end = [ended](absl::Status status) { ended->set_value(std::move(status)); };
    const AttemptId attempt = spec.key.attempt;
    BATON_CHECK(sender_->Open(std::move(spec)).ok());
    sender_->Finish(attempt, tokens);
    return ended->get_future();
  }

  absl::Status Move(int64_t tokens) {
    absl::Status status = Start(tokens).get();
    if (!status.ok()) return status;
    const std::string end = decode_->Line();
    BATON_CHECK(end == absl::StrCat("end ", request_, " OK")) << end;
    return status;
  }

  double CeilingOf() {
    std::map<std::string, double> ceilings;
    if (name_ == "nccl") {
      ceilings["bare link"] = NcclGroups(*fabric_, *decode_);
    } else if (name_ == "cuda_ipc") {
      ceilings["device copy"] = DeviceCopy();
    } else {
      ceilings["device to pinned memory"] = PinnedCopy();
      ceilings["memcpy"] = HostCopy();
    }
    double lowest = 1e18;
    for (const auto& [what, bytes] : ceilings) {
      std::printf("%s: ceiling: %s %.2f GB/s\n", name_.c_str(), what.c_str(), bytes / 1e9);
      lowest = std::min(lowest, bytes);
    }
    return lowest;
  }

  void Measure(int64_t tokens, double ceiling) {
    Report(name_, HandoffBytes(cache_.layout(), tokens), tokens, ceiling,
           fabric_ == nullptr ? 3 : kRuns, [&] { BATON_CHECK(Move(tokens).ok()); });
  }

  // Another sender to the same peer is killed in the middle of a hand-off.
  void KillSender() {
    Expect(kMaxTokens);
    {
      Child sender({"--prefill", name_, std::to_string(decode_->incarnation()),
                    decode_->grpc_address(), std::to_string(request_)},
                   /*card=*/0);
      BATON_CHECK(sender.Line() == "sending");
      std::this_thread::sleep_for(std::chrono::milliseconds(name_ == "cuda_ipc" ? 1 : 3));
    }
    const auto begin = SteadyClock::now();
    cache_.Fill(kPrompts[0], ++seed_);
    const absl::Status moved = Move(kPrompts[0]);
    std::printf("%s: another sender killed: %s after %.1f ms, %s\n", name_.c_str(),
                moved.ToString().c_str(), Ms(begin),
                decode_->Ask(absl::StrCat("compare ", kPrompts[0], " ", seed_)).c_str());
  }

  // The peer is stopped, goes on, is killed; each in the middle of a hand-off.
  void Faults() {
    KillSender();
    std::future<absl::Status> sent = Start(kMaxTokens);
    kill(decode_->pid(), SIGSTOP);
    auto begin = SteadyClock::now();
    const absl::Status stopped = sent.get();
    std::printf("%s: peer stopped: %s after %.0f ms\n", name_.c_str(), stopped.ToString().c_str(),
                Ms(begin));
    kill(decode_->pid(), SIGCONT);
    if (stopped.ok()) decode_->Line();
    begin = SteadyClock::now();
    absl::Status again = Move(kPrompts[0]);
    while (!again.ok() && Ms(begin) < 10'000) again = Move(kPrompts[0]);
    std::printf("%s: peer goes on: %s after %.0f ms\n", name_.c_str(), again.ToString().c_str(),
                Ms(begin));
    sent = Start(kMaxTokens);
    kill(decode_->pid(), SIGKILL);
    begin = SteadyClock::now();
    const absl::Status killed = sent.get();
    std::printf("%s: peer killed: %s after %.1f ms\n", name_.c_str(), killed.ToString().c_str(),
                Ms(begin));
    decode_ = std::make_unique<DecodeProcess>(kMaxTokens);
    begin = SteadyClock::now();
    again = Move(kPrompts[0]);
    std::printf("%s: another peer: %s after %.1f ms\n", name_.c_str(), again.ToString().c_str(),
                Ms(begin));
    std::fflush(stdout);
  }

  std::string name_;
  engine::FlashCache cache_;
  std::unique_ptr<Fabric> fabric_;  // of a device transport
  std::unique_ptr<DecodeProcess> decode_;
  std::unique_ptr<Sender> sender_;
  uint64_t request_ = 0;
  uint64_t seed_ = 0;
};

// cuda_ipc between two threads: two processes take turns on a card, which two cards do not.
void RunInOneProcess() {
  auto fabric = MakeFabric("cuda_ipc");
  BATON_CHECK(fabric.ok()) << fabric.status();
  engine::FlashCache from(kMaxTokens, /*order=*/1);
  engine::FlashCache to(kMaxTokens, /*order=*/2);
  TransferThread callbacks;
  const std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  const Incarnation incarnation = NewIncarnation();
  const std::string endpoint = UnixLaneEndpoint("cuda_ipc", incarnation);
  auto lanes = LaneService::Start(fabric->get(), receiver.get(), *shm::Listen(endpoint));
  auto transport = MakeLaneTransport(fabric->get(), ConnectUnixLane);
  BATON_CHECK(lanes.ok() && transport.ok()) << lanes.status() << transport.status();
  const size_t frame_bytes = (*transport)->capabilities().max_frame_bytes;
  const auto sender = MakeSender({.frame_bytes = frame_bytes}, *std::move(transport));
  uint64_t request = 0;
  const auto move = [&](int64_t tokens) {
    const HandoffKey key = {
        .attempt = {.request = {1, ++request}, .attempt = 1}, .sender = 1, .receiver = incarnation};
    std::promise<void> sent;
    std::promise<void> received;
    LandingSpec landing;
    landing.key = key;
    landing.records = &to.records();
    landing.layout = to.layout();
    landing.tokens = tokens;
    landing.on_end = [&](const absl::Status& status) {
      BATON_CHECK(status.ok()) << status;
      received.set_value();
    };
    BATON_CHECK(receiver->Expect(std::move(landing)).ok());
    OutboundSpec spec;
    spec.key = key;
    spec.endpoint = endpoint;
    spec.records = &from.records();
    spec.layout = from.layout();
    spec.on_end = [&](const absl::Status& status) {
      BATON_CHECK(status.ok()) << status;
      sent.set_value();
    };
    BATON_CHECK(sender->Open(std::move(spec)).ok());
    sender->Finish(key.attempt, tokens);
    sent.get_future().wait();
    received.get_future().wait();
  };
  from.Fill(kPrompts[0], /*seed=*/1);
  move(kPrompts[0]);
  std::printf("threads: first hand-off %s\n", to.Compare(kPrompts[0], 1).c_str());
  const double ceiling = DeviceCopy();
  for (const int64_t tokens : kPrompts) {
    Report("threads", HandoffBytes(from.layout(), tokens), tokens, ceiling, kRuns,
           [&] { move(tokens); });
  }
}

}  // namespace
}  // namespace baton::kvtransfer

int main(int argc, char** argv) {
  // What processes of the bench say to each other is on stdout.
  BATON_CHECK(baton::InitLogging("bench", "info").ok());
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "--decode") {
    return baton::kvtransfer::RunDecode(std::stoll(words[1]));
  }
  signal(SIGPIPE, SIG_IGN);
  if (words.size() == 5 && words[0] == "--prefill") {
    baton::kvtransfer::Bench().SendOnce(words[1], {std::stoull(words[2]), words[3]},
                                        std::stoull(words[4]));
    return 1;
  }
  if (words.empty()) {
    words = {"cuda_ipc", "nccl", "shm", "grpc"};
    if (baton::kvtransfer::DecodeCard() == 0) words.insert(words.begin(), "threads");
  }
  for (const std::string& word : words) {
    if (word == "threads") {
      baton::kvtransfer::RunInOneProcess();
    } else {
      baton::kvtransfer::Bench().Run(word);
    }
  }
}
