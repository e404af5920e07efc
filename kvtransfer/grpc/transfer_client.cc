#include "kvtransfer/grpc/transfer_client.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/transfer.grpc.pb.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "kvtransfer/completion_queue.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/grpc/limits.h"
#include "kvtransfer/grpc/verdict_proto.h"
#include "kvtransfer/host_regions.h"

namespace baton::kvtransfer {
namespace {

// Requests are written as the bytes that they are on the wire.
using PushCall = rpc::BidiCall<grpc::ByteBuffer, v1::PushResponse>;
constexpr char kPush[] = "/baton.v1.Transfer/Push";

// A PushRequest as protobuf would write it: the tag of field 1, the size of the frame, the frame.
// Its bytes are not copied before they go to the kernel. `memory`, which holds them, lives until
// gRPC has let go of it: when a stream is cut short that may be after the post's completion, and
// what the memory holds by then goes nowhere.
grpc::ByteBuffer PushMessage(std::shared_ptr<std::byte[]> memory,
                             std::span<const std::byte> frame) {
  std::string head(1, '\x0A');
  size_t left = frame.size();
  for (; left >= 0x80; left >>= 7) head.push_back(static_cast<char>(left | 0x80));
  head.push_back(static_cast<char>(left));
  const grpc::Slice parts[] = {
      grpc::Slice(head),
      grpc::Slice(
          const_cast<std::byte*>(frame.data()), frame.size(),
          [](void* held) { delete static_cast<std::shared_ptr<std::byte[]>*>(held); },
          new std::shared_ptr<std::byte[]>(std::move(memory)))};
  return grpc::ByteBuffer(parts, std::size(parts));
}

// One Transfer.Push call. Kept alive by its callbacks until it has ended.
struct Stream {
  struct Sent {
    uint64_t post = 0;
    uint64_t sequence = 0;  // as the frame says, for the server to repeat
  };
  std::string endpoint;
  std::shared_ptr<PushCall> call;
  std::deque<Sent> unanswered;  // answers come in the same order
  bool done = false;            // completes nothing any more
};

// What gRPC's callbacks share with the transport.
class Streams : public std::enable_shared_from_this<Streams> {
 public:
  explicit Streams(const rpc::Credentials& credentials) : credentials_(credentials) {}

  CompletionQueue& completions() { return completions_; }

  // The stream of the endpoint that has least to do, with `sent` added to it.
  std::shared_ptr<Stream> Add(const std::string& endpoint, Stream::Sent sent);
  void Cancel(uint64_t post);
  // Ends every stream and waits until gRPC calls nothing of this any more.
  void Close();

 private:
  std::shared_ptr<Stream> OpenLocked(const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No further post goes there.
  void ForgetLocked(const Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAnswer(Stream& stream, v1::PushResponse response);
  void OnDone(Stream& stream, const absl::Status& status);

  const rpc::Credentials credentials_;
  CompletionQueue completions_;
  Mutex mutex_;
  CondVar all_done_;
  absl::flat_hash_map<std::string, std::vector<std::shared_ptr<Stream>>> by_endpoint_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<Stream>> by_post_ ABSL_GUARDED_BY(mutex_);
  int live_ ABSL_GUARDED_BY(mutex_) = 0;  // streams whose OnDone is still to come
};

std::shared_ptr<Stream> Streams::Add(const std::string& endpoint, Stream::Sent sent) {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Stream>>& open = by_endpoint_[endpoint];
  const auto least = std::ranges::min_element(
      open, {}, [](const std::shared_ptr<Stream>& stream) { return stream->unanswered.size(); });
  const bool another =
      least == open.end() || (open.size() < kStreamsPerPeer && !(*least)->unanswered.empty());
  const std::shared_ptr<Stream> stream = another ? OpenLocked(endpoint) : *least;
  stream->unanswered.push_back(sent);
  const bool added = by_post_.try_emplace(sent.post, stream).second;
  BATON_CHECK(added) << "post " << sent.post << " is outstanding";
  return stream;
}

std::shared_ptr<Stream> Streams::OpenLocked(const std::string& endpoint) {
  auto stream = std::make_shared<Stream>();
  stream->endpoint = endpoint;
  const std::shared_ptr<Streams> self = shared_from_this();
  stream->call = PushCall::Create(
      kMaxUnansweredFrames,
      {.on_message =
           [self, stream](v1::PushResponse&& response) {
             self->OnAnswer(*stream, std::move(response));
           },
       .on_done = [self, stream](absl::Status status) { self->OnDone(*stream, status); }});
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::PushResponse> stub(
      rpc::MakeChannel(endpoint, rpc::ChannelKind::kBulk, credentials_));
  stream->call->Start([&stub](grpc::ClientContext* context, auto* reactor) {
    stub.PrepareBidiStreamingCall(context, kPush, grpc::StubOptions(), reactor);
  });
  by_endpoint_[endpoint].push_back(stream);
  ++live_;
  return stream;
}

void Streams::ForgetLocked(const Stream& stream) {
  const auto it = by_endpoint_.find(stream.endpoint);
  if (it == by_endpoint_.end()) return;
  std::erase_if(it->second,
                [&](const std::shared_ptr<Stream>& open) { return open.get() == &stream; });
  if (it->second.empty()) by_endpoint_.erase(it);
}

void Streams::OnAnswer(Stream& stream, v1::PushResponse response) {
  Completion completion;
  {
    MutexLock lock(mutex_);
    if (stream.done) return;
    const std::optional<FrameVerdict> verdict = VerdictFromProto(response.verdict());
    if (stream.unanswered.empty() || !verdict.has_value() ||
        response.frame_sequence() != stream.unanswered.front().sequence) {
      // Not the protocol: whatever is outstanding fails when the call has ended.
      stream.call->Cancel();
      return;
    }
    completion = {.post = stream.unanswered.front().post, .verdict = *verdict};
    stream.unanswered.pop_front();
    by_post_.erase(completion.post);
  }
  completion.detail = std::move(*response.mutable_detail());
  completions_.Push(std::move(completion));
}

void Streams::OnDone(Stream& stream, const absl::Status& status) {
  std::deque<Stream::Sent> failed;
  {
    MutexLock lock(mutex_);
    stream.done = true;
    failed = std::exchange(stream.unanswered, {});
    for (const Stream::Sent& sent : failed) by_post_.erase(sent.post);
    ForgetLocked(stream);
  }
  const absl::Status failure = absl::UnavailableError(
      absl::StrCat("stream to ", stream.endpoint, " ended: ", status.ToString()));
  for (const Stream::Sent& sent : failed) completions_.Push({.post = sent.post, .status = failure});
  MutexLock lock(mutex_);
  --live_;
  all_done_.NotifyAll();
}

void Streams::Cancel(uint64_t post) {
  std::shared_ptr<PushCall> call;
  {
    MutexLock lock(mutex_);
    const auto it = by_post_.find(post);
    if (it == by_post_.end()) return;
    call = it->second->call;
    ForgetLocked(*it->second);
  }
  call->Cancel();
}

void Streams::Close() {
  std::vector<std::shared_ptr<PushCall>> calls;
  {
    MutexLock lock(mutex_);
    for (const auto& [endpoint, open] : by_endpoint_) {
      for (const std::shared_ptr<Stream>& stream : open) calls.push_back(stream->call);
    }
  }
  for (const auto& call : calls) call->Cancel();
  {
    MutexLock lock(mutex_);
    while (live_ > 0) all_done_.Wait(mutex_);
  }
  completions_.SetWakeup(nullptr);
}

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(const rpc::Credentials& credentials)
      : streams_(std::make_shared<Streams>(credentials)) {}
  ~GrpcTransport() override { streams_->Close(); }

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  void SetWakeup(std::function<void()> wakeup) override {
    streams_->completions().SetWakeup(std::move(wakeup));
  }

  absl::StatusOr<Region> Register(size_t bytes) override { return regions_.Register(bytes); }
  void Release(RegionId region) override { regions_.Release(region); }

  void Post(const PostRequest& request) override {
    BATON_CHECK(request.frame.size() <= kMaxGrpcFrameBytes) << request.frame.size();
    const std::shared_ptr<Stream> stream =
        streams_->Add(std::string(request.endpoint), {request.post, PeekSequence(request.frame)});
    // When the call has just ended, its OnDone completes the post.
    stream->call->Write(PushMessage(regions_.Share(request.region), request.frame));
  }

  std::vector<Completion> Poll() override { return streams_->completions().Take(); }
  void Cancel(uint64_t post) override { streams_->Cancel(post); }

 private:
  const TransportCapabilities capabilities_{.name = "grpc",
                                            .max_frame_bytes = kGrpcFrameBytes,
                                            .max_frames_in_flight = kMaxUnansweredFrames};
  HostRegions regions_;
  const std::shared_ptr<Streams> streams_;
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport(const rpc::Credentials& credentials) {
  return std::make_unique<GrpcTransport>(credentials);
}

}  // namespace baton::kvtransfer
