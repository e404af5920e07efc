// Bytes per second of a hand-off's parts and of whole hand-offs of V4-Flash prompts, checksummed
// and verified. One row per prompt length; the first hand-off of each is checked byte by byte.

#include <algorithm>
#include <cstring>
#include <future>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/rpc/server.h"
#include "kvtransfer/crc32c.h"
#include "kvtransfer/grpc/transfer_client.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "kvtransfer/loopback/loopback.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/testing/fake_records.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::FlashLayout;

// All live records of one prompt in one piece of memory, layer by layer.
class FlatRecords final : public SequenceRecords {
 public:
  FlatRecords(const CacheLayout& layout, int64_t tokens) {
    size_t bytes = 0;
    for (const StreamLayout& stream : layout.streams) {
      const IndexRange live = LiveRecords(stream.stream, tokens);
      areas_[static_cast<size_t>(stream.stream)] = {bytes, stream.record_bytes, live};
      bytes += static_cast<size_t>(live.size()) * stream.layers * stream.record_bytes;
    }
    memory_.resize(bytes);
  }

  void Gather(const RecordRange& range, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), memory_.data() + Offset(range), bytes.size());
  }
  void Scatter(const RecordRange& range, std::span<const std::byte> bytes) override {
    std::memcpy(memory_.data() + Offset(range), bytes.data(), bytes.size());
  }
  std::vector<std::byte>& memory() { return memory_; }

 private:
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
  std::vector<std::byte> memory_;
};

void BM_Crc32c(benchmark::State& state) {
  const std::vector<std::byte> bytes(size_t{2} << 20, std::byte{7});
  const auto crc = state.range(0) != 0 ? Crc32c : Crc32cTable;
  for (auto _ : state) benchmark::DoNotOptimize(crc(bytes, 0));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
  state.SetLabel(state.range(0) == 0 ? "table" : HasHardwareCrc32c() ? "hardware" : "no hardware");
}
BENCHMARK(BM_Crc32c)->Arg(0)->Arg(1);

// Sends one prompt and waits for both ends.
void MovePrompt(Sender& sender, Receiver& receiver, const std::string& endpoint,
                FlatRecords& source, FlatRecords& target, int64_t tokens) {
  static uint32_t attempt = 0;
  const HandoffKey key = {
      .attempt = {.request = {1, 1}, .attempt = ++attempt}, .sender = 1, .receiver = 2};
  std::promise<absl::Status> sent;
  std::promise<absl::Status> received;
  BATON_CHECK(receiver
                  .Expect({.key = key,
                           .records = &target,
                           .layout = FlashLayout(),
                           .tokens = tokens,
                           .on_end = [&](absl::Status s) { received.set_value(std::move(s)); }})
                  .ok());
  BATON_CHECK(sender
                  .Open({.key = key,
                         .endpoint = endpoint,
                         .records = &source,
                         .layout = FlashLayout(),
                         .on_end = [&](absl::Status s) { sent.set_value(std::move(s)); }})
                  .ok());
  sender.Finish(key.attempt, tokens);
  BATON_CHECK(received.get_future().get().ok());
  BATON_CHECK(sent.get_future().get().ok());
}

void MovePrompts(benchmark::State& state, Sender& sender, Receiver& receiver,
                 const std::string& endpoint) {
  const int64_t tokens = state.range(0);
  FlatRecords source(FlashLayout(), tokens);
  FlatRecords target(FlashLayout(), tokens);
  uint64_t word = 1;
  for (std::byte& byte : source.memory()) {
    byte = static_cast<std::byte>((word = word * 6364136223846793005 + 1) >> 56);
  }
  MovePrompt(sender, receiver, endpoint, source, target, tokens);
  BATON_CHECK(source.memory() == target.memory());
  for (auto _ : state) MovePrompt(sender, receiver, endpoint, source, target, tokens);
  const auto bytes = static_cast<int64_t>(source.memory().size());
  state.SetBytesProcessed(state.iterations() * bytes);
  state.SetLabel(absl::StrCat(bytes / 1'000'000, " MB a hand-off"));
}

void BM_HandoffLoopback(benchmark::State& state) {
  TransferThread transfer_thread;
  LoopbackNetwork network(&transfer_thread);
  const std::unique_ptr<Receiver> receiver = MakeReceiver(&transfer_thread);
  BATON_CHECK(network.Attach("decode", receiver.get()).ok());
  const std::unique_ptr<Sender> sender = MakeSender({}, network.Connect());
  MovePrompts(state, *sender, *receiver, "decode");
}
BENCHMARK(BM_HandoffLoopback)
    ->Arg(256)
    ->Arg(2048)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void BM_HandoffGrpc(benchmark::State& state) {
  TransferThread transfer_thread;
  const std::unique_ptr<Receiver> receiver = MakeReceiver(&transfer_thread);
  TransferService service(receiver.get(), &transfer_thread);
  auto server = rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                                        .services = {service.service()},
                                        .service_names = {"baton.v1.Transfer"}});
  BATON_CHECK(server.ok()) << server.status();
  {
    const std::unique_ptr<Sender> sender = MakeSender({}, MakeGrpcTransport());
    MovePrompts(state, *sender, *receiver, absl::StrCat("127.0.0.1:", (*server)->port()));
  }
  (*server)->Shutdown(std::chrono::seconds(1));
}
BENCHMARK(BM_HandoffGrpc)
    ->Arg(256)
    ->Arg(2048)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace baton::kvtransfer
