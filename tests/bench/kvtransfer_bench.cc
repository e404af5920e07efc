// What hand-offs cost, checksummed and verified, beside what the machine can do in the same run:
// memcpy, a raw TCP pair, and a raw gRPC byte stream that is copied out. Buffers are cold: they
// rotate through more memory than any cache holds. The first move of each kind is checked byte by
// byte. For medians of interleaved runs:
//   kvtransfer_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//                    --benchmark_report_aggregates_only=true
// Time is that of the clock, CPU that of all threads: on a busy machine the second is the one to
// compare. The goals, and whether they are reached, are printed at the end.

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <thread>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/transfer.grpc.pb.h"
#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "kernels/crc32c.h"
#include "kvtransfer/grpc/transfer_client.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "kvtransfer/loopback/loopback.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/shm/shm_service.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/shm/wire.h"
#include "tests/bench/kvtransfer_goals.h"
#include "tests/testing/fake_records.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::FlashLayout;

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr size_t kPoolBytes = 256 * kMiB;
constexpr size_t kChunkBytes = kMiB;  // of the raw streams

// Two pools through which transfers rotate.
class ColdPools {
 public:
  static ColdPools& Get() {
    static ColdPools* const pools = new ColdPools;
    return *pools;
  }
  struct Buffers {
    std::span<std::byte> from;
    std::span<std::byte> to;
  };
  Buffers Next(size_t bytes) {
    if (at_ + bytes > kPoolBytes) at_ = 0;
    const Buffers buffers = {std::span(from_).subspan(at_, bytes),
                             std::span(to_).subspan(at_, bytes)};
    at_ += bytes;
    return buffers;
  }

 private:
  ColdPools() : from_(kPoolBytes), to_(kPoolBytes) {
    uint64_t word = 1;
    for (std::byte& byte : from_) {
      byte = static_cast<std::byte>((word = word * 6364136223846793005 + 1) >> 56);
    }
  }
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  size_t at_ = 0;
};

// Moves cold buffers of state.range(0) bytes.
template <typename Move>
void MoveBuffers(benchmark::State& state, Move move) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const ColdPools::Buffers first = ColdPools::Get().Next(bytes);
  std::fill(first.to.begin(), first.to.end(), std::byte{0});
  move(first);
  BATON_CHECK(std::equal(first.from.begin(), first.from.end(), first.to.begin()));
  for (auto _ : state) move(ColdPools::Get().Next(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t bytes : {64 * kKiB, 1 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    benchmark->Arg(bytes);
  }
  benchmark->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
}

void BM_Crc32c(benchmark::State& state) {
  const std::vector<std::byte> bytes(2 * kMiB, std::byte{7});
  const auto crc = state.range(0) != 0 ? kernels::Crc32c : kernels::Crc32cTable;
  for (auto _ : state) benchmark::DoNotOptimize(crc(bytes, 0));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
  state.SetLabel(state.range(0) == 0            ? "table"
                 : kernels::HasHardwareCrc32c() ? "hardware"
                                                : "no hardware");
}
BENCHMARK(BM_Crc32c)->Arg(0)->Arg(1);

// --- ceilings

void BM_Memcpy(benchmark::State& state) {
  MoveBuffers(state, [](const ColdPools::Buffers& buffers) {
    std::memcpy(buffers.to.data(), buffers.from.data(), buffers.from.size());
    benchmark::ClobberMemory();
  });
}
BENCHMARK(BM_Memcpy)->Apply(Sizes);

void WriteAll(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(socket, bytes.data(), std::min(bytes.size(), kChunkBytes));
    BATON_CHECK(written > 0);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void ReadAll(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = read(socket, bytes.data(), bytes.size());
    BATON_CHECK(got > 0);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

void BM_TcpPair(benchmark::State& state) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  BATON_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  BATON_CHECK(listen(listener, 1) == 0);
  BATON_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  BATON_CHECK(connect(client, reinterpret_cast<sockaddr*>(&address), size) == 0);
  const int server = accept(listener, nullptr, nullptr);
  MoveBuffers(state, [&](const ColdPools::Buffers& buffers) {
    std::thread reader([&] { ReadAll(server, buffers.to); });
    WriteAll(client, buffers.from);
    reader.join();
  });
  for (const int fd : {listener, client, server}) close(fd);
}
BENCHMARK(BM_TcpPair)->Apply(Sizes);

// Copies what comes to where the client's buffer is meant to go, and answers when all is there.
class CopyService final : public v1::Transfer::Service {
 public:
  void Expect(std::span<std::byte> to) {
    to_ = to;
    left_ = to.size();
  }
  grpc::Status Push(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::PushResponse, v1::PushRequest>* stream) override {
    v1::PushRequest request;
    while (stream->Read(&request)) {
      const size_t bytes = request.frame().size();
      std::memcpy(to_.data() + (to_.size() - left_), request.frame().data(), bytes);
      left_ -= bytes;
      if (left_ == 0) stream->Write(v1::PushResponse());
    }
    return grpc::Status::OK;
  }

 private:
  std::span<std::byte> to_;
  size_t left_ = 0;
};

void BM_GrpcStream(benchmark::State& state) {
  CopyService service;
  auto server = rpc::GrpcServer::Start(
      {.listen = "127.0.0.1:0", .services = {&service}, .service_names = {"baton.v1.Transfer"}});
  BATON_CHECK(server.ok()) << server.status();
  {
    v1::Transfer::Stub stub(
        rpc::MakeChannel(absl::StrCat("127.0.0.1:", (*server)->port()), rpc::ChannelKind::kBulk));
    grpc::ClientContext context;
    auto stream = stub.Push(&context);
    MoveBuffers(state, [&](const ColdPools::Buffers& buffers) {
      service.Expect(buffers.to);
      for (size_t at = 0; at < buffers.from.size(); at += kChunkBytes) {
        const auto chunk =
            buffers.from.subspan(at, std::min(kChunkBytes, buffers.from.size() - at));
        v1::PushRequest request;
        request.set_frame(chunk.data(), chunk.size());
        BATON_CHECK(stream->Write(request));
      }
      v1::PushResponse response;
      BATON_CHECK(stream->Read(&response));
    });
    stream->WritesDone();
    BATON_CHECK(stream->Finish().ok());
  }
  (*server)->Shutdown(std::chrono::seconds(1));
}
BENCHMARK(BM_GrpcStream)->Apply(Sizes);

// --- hand-offs

// All live records of one prompt in one piece of memory, layer by layer.
class FlatRecords final : public SequenceRecords {
 public:
  static size_t Bytes(const CacheLayout& layout, int64_t tokens) {
    return static_cast<size_t>(HandoffBytes(layout, tokens));
  }
  FlatRecords(const CacheLayout& layout, int64_t tokens, std::span<std::byte> memory)
      : memory_(memory) {
    size_t bytes = 0;
    for (const StreamLayout& stream : layout.streams) {
      const IndexRange live = LiveRecords(stream.stream, tokens);
      areas_[static_cast<size_t>(stream.stream)] = {bytes, stream.record_bytes, live};
      bytes += static_cast<size_t>(live.size()) * stream.layers * stream.record_bytes;
    }
    BATON_CHECK(bytes == memory.size()) << bytes << ", " << memory.size();
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override {
    return kernels::Crc32cCopy(memory_.subspan(Offset(range), bytes.size()), bytes.data(), crc,
                               kernels::Stores::kCached);
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override {
    return kernels::Crc32cCopy(bytes, memory_.data() + Offset(range), crc,
                               kernels::Stores::kStreaming);
  }
  struct Area {
    size_t offset = 0;
    size_t record_bytes = 0;
    IndexRange live;
  };
  size_t Offset(const RecordRange& range) const {
    const Area& area = areas_[static_cast<size_t>(range.stream)];
    const int64_t record = range.layer * area.live.size() + range.indices.begin - area.live.begin;
    return area.offset + static_cast<size_t>(record) * area.record_bytes;
  }

  std::array<Area, kCacheStreamCount + 1> areas_;
  const std::span<std::byte> memory_;
};

// Both ends of a transport.
class Ends {
 public:
  virtual ~Ends() = default;

  // Sends one prompt and waits for both ends.
  void Move(const CacheLayout& layout, int64_t tokens, const ColdPools::Buffers& buffers) {
    FlatRecords source(layout, tokens, buffers.from);
    FlatRecords target(layout, tokens, buffers.to);
    const HandoffKey key = {
        .attempt = {.request = {1, 1}, .attempt = ++attempt_}, .sender = 1, .receiver = 2};
    std::promise<absl::Status> sent;
    std::promise<absl::Status> received;
    LandingSpec landing;
    landing.key = key;
    landing.records = &target;
    landing.layout = layout;
    landing.tokens = tokens;
    landing.on_end = [&](absl::Status status) { received.set_value(std::move(status)); };
    BATON_CHECK(receiver->Expect(std::move(landing)).ok());
    OutboundSpec outbound;
    outbound.key = key;
    outbound.endpoint = endpoint;
    outbound.records = &source;
    outbound.layout = layout;
    outbound.on_end = [&](absl::Status status) { sent.set_value(std::move(status)); };
    BATON_CHECK(sender->Open(std::move(outbound)).ok());
    sender->Finish(key.attempt, tokens);
    BATON_CHECK(received.get_future().get().ok());
    BATON_CHECK(sent.get_future().get().ok());
  }

 protected:
  TransferThread transfer_thread;
  const std::unique_ptr<Receiver> receiver = MakeReceiver(&transfer_thread);
  std::string endpoint;
  std::unique_ptr<Sender> sender;

 private:
  uint32_t attempt_ = 0;
};

class LoopbackEnds final : public Ends {
 public:
  LoopbackEnds() {
    endpoint = "decode";
    BATON_CHECK(network_.Attach(endpoint, receiver.get()).ok());
    sender = MakeSender({}, network_.Connect());
  }
  ~LoopbackEnds() override { sender.reset(); }

 private:
  LoopbackNetwork network_{&transfer_thread};
};

class GrpcEnds final : public Ends {
 public:
  GrpcEnds() {
    auto server = rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                                          .services = {service_.service()},
                                          .service_names = {"baton.v1.Transfer"}});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    endpoint = absl::StrCat("127.0.0.1:", server_->port());
    sender = MakeSender({}, MakeGrpcTransport());
  }
  ~GrpcEnds() override {
    sender.reset();
    server_->Shutdown(std::chrono::seconds(1));
  }

 private:
  TransferService service_{receiver.get(), &transfer_thread};
  std::unique_ptr<rpc::GrpcServer> server_;
};

class ShmEnds final : public Ends {
 public:
  ShmEnds() {
    const Incarnation incarnation = NewIncarnation();
    auto service = ShmService::Start(receiver.get(), incarnation);
    BATON_CHECK(service.ok()) << service.status();
    service_ = *std::move(service);
    endpoint = shm::Endpoint(incarnation);
    auto transport = MakeShmTransport();
    BATON_CHECK(transport.ok()) << transport.status();
    sender = MakeSender({}, *std::move(transport));
  }
  ~ShmEnds() override { sender.reset(); }

 private:
  std::unique_ptr<ShmService> service_;
};

// One stream, one layer: records of 1 KiB, one for four tokens.
template <typename Transport>
void BM_Move(benchmark::State& state) {
  Transport ends;
  const CacheLayout layout{{{CacheStream::kCsaKv, RecordFormat::kBf16, 1, kKiB}}};
  MoveBuffers(state, [&](const ColdPools::Buffers& buffers) {
    ends.Move(layout, static_cast<int64_t>(buffers.from.size()) / kKiB * 4, buffers);
  });
}
BENCHMARK(BM_Move<LoopbackEnds>)->Apply(Sizes);
BENCHMARK(BM_Move<GrpcEnds>)->Apply(Sizes);
BENCHMARK(BM_Move<ShmEnds>)->Apply(Sizes);

// A prompt of V4-Flash.
template <typename Transport>
void BM_Prompt(benchmark::State& state) {
  Transport ends;
  const CacheLayout layout = FlashLayout();
  const size_t bytes = FlatRecords::Bytes(layout, state.range(0));
  std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 2654435761 >> 13);
  ends.Move(layout, state.range(0), {from, to});
  BATON_CHECK(from == to);
  for (auto _ : state) ends.Move(layout, state.range(0), {from, to});
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
  state.SetLabel(absl::StrCat(bytes / 1'000'000, " MB"));
}
void Prompts(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t tokens : {512, 8192, 131072}) benchmark->Arg(tokens);
  benchmark->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
}
BENCHMARK(BM_Prompt<LoopbackEnds>)->Apply(Prompts);
BENCHMARK(BM_Prompt<GrpcEnds>)->Apply(Prompts);
BENCHMARK(BM_Prompt<ShmEnds>)->Apply(Prompts);

}  // namespace
}  // namespace baton::kvtransfer

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  baton::kvtransfer::GoalsReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
