#include "decode/grpc_prefill_client.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "baton/v1/prefill.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "common/rpc/worker_control_client.h"
#include "common/status_macros.h"
#include "kvtransfer/grpc/handshake.h"
#include "spdlog/spdlog.h"

namespace baton::decode {
namespace {

constexpr std::chrono::seconds kHandshakeTimeout{5};
// Enough for a connection within a cluster; what a dead worker costs before another is asked.
constexpr std::chrono::milliseconds kRedialPatience{200};
// Open, Grant and Received: a stream never has more to say.
constexpr size_t kMaxQueued = 4;

using Stream = rpc::BidiCall<v1::PrefillRunRequest, v1::PrefillRunResponse>;

// What this process has agreed with one other.
struct Agreement {
  Incarnation incarnation = 0;
  std::string transport;
};

}  // namespace

struct GrpcPrefillClient::Shared {
  const kvtransfer::Manifest manifest;
  const uint64_t semantics_hash;
  const v1::WorkerRef self;
  WorkerMetrics& metrics;
  const rpc::Credentials credentials;
  const kvtransfer::ControlFaults* const faults;
};

// One prefill worker's address: its channel, and the handshake with whoever answers there.
class GrpcPrefillClient::Link : public std::enable_shared_from_this<Link> {
 public:
  // With the agreement, and whether it was an old one.
  using Agreed = std::function<void(absl::StatusOr<Agreement>, bool kept)>;

  Link(const std::string& address, std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)),
        channel_(rpc::MakeChannel(address, rpc::ChannelKind::kControl, shared_->credentials)),
        control_(address, channel_),
        stub_(v1::Prefill::NewStub(channel_)) {}

  v1::Prefill::Stub& stub() { return *stub_; }

  // False also while it tries, which it goes on doing as long as there is a channel.
  bool connected() const {
    return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  }

  // Calls `agreed` now, or once the handshake has been answered. Handshakes are not repeated while
  // one runs. `incarnation` 0: whoever is there.
  void Agree(Incarnation incarnation, Agreed agreed) {
    std::optional<Agreement> kept;
    bool start = false;
    {
      MutexLock lock(mutex_);
      if (agreement_ && (incarnation == 0 || incarnation == agreement_->incarnation)) {
        kept = agreement_;
      } else {
        waiting_.push_back(agreed);
        start = waiting_.size() == 1;
      }
    }
    if (kept) {
      agreed(*kept, true);
    } else if (start) {
      // A router that names the worker has just heard from it.
      control_.Redial(kRedialPatience, [self = shared_from_this()] { self->StartHandshake(); });
    }
  }

  // The process behind the agreement may be gone.
  void Forget(Incarnation incarnation) {
    MutexLock lock(mutex_);
    if (agreement_ && agreement_->incarnation == incarnation) agreement_.reset();
  }

 private:
  void StartHandshake() {
    v1::HandshakeRequest request;
    *request.mutable_caller() = shared_->self;
    *request.mutable_manifest() = kvtransfer::ManifestToProto(shared_->manifest);
    control_.Handshake(request, kHandshakeTimeout,
                       [self = shared_from_this()](absl::StatusOr<v1::HandshakeResponse> answer) {
                         self->OnAnswer(std::move(answer));
                       });
  }

  // The answer is judged here as well: the peer may be of another release.
  absl::StatusOr<Agreement> Judge(const absl::StatusOr<v1::HandshakeResponse>& answer) const {
    BATON_RETURN_IF_ERROR(answer.status());
    BATON_RETURN_IF_ERROR(kvtransfer::CheckCompatible(
        shared_->manifest, kvtransfer::ManifestFromProto(answer->manifest())));
    const std::vector<std::string>& ours = shared_->manifest.transports;
    if (std::find(ours.begin(), ours.end(), answer->transport()) == ours.end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "transport \"", answer->transport(), "\" was chosen of ", absl::StrJoin(ours, ", ")));
    }
    spdlog::info("prefill worker {} {:016x}: hand-offs over {}", control_.address(),
                 answer->self().incarnation(), answer->transport());
    kvtransfer::CountTransports(*answer, shared_->metrics);
    return Agreement{answer->self().incarnation(), answer->transport()};
  }

  void OnAnswer(absl::StatusOr<v1::HandshakeResponse> answer) {
    const absl::StatusOr<Agreement> result = Judge(answer);
    shared_->metrics.handshakes[OutcomeOf(result.status())].Increment();
    std::vector<Agreed> waiting;
    {
      MutexLock lock(mutex_);
      if (result.ok()) agreement_ = *result;
      waiting.swap(waiting_);
    }
    for (const Agreed& agreed : waiting) agreed(result, false);
  }

  const std::shared_ptr<const Shared> shared_;
  const std::shared_ptr<grpc::Channel> channel_;
  const rpc::WorkerControlClient control_;
  const std::unique_ptr<v1::Prefill::Stub> stub_;

  Mutex mutex_;
  std::optional<Agreement> agreement_ ABSL_GUARDED_BY(mutex_);
  std::vector<Agreed> waiting_ ABSL_GUARDED_BY(mutex_);
};

class GrpcPrefillClient::Call final : public PrefillCall,
                                      public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<const Shared> shared, std::shared_ptr<Link> link, PrefillOpen open,
       PrefillEvents events)
      : shared_(std::move(shared)),
        link_(std::move(link)),
        open_(std::move(open)),
        events_(std::move(events)) {}

  void Start(Incarnation incarnation) {
    link_->Agree(incarnation,
                 [self = shared_from_this()](absl::StatusOr<Agreement> agreement, bool kept) {
                   if (agreement.ok()) {
                     self->Run(*std::move(agreement), kept);
                   } else {
                     self->EndWith(agreement.status());
                   }
                 });
  }

  void Grant(const kvtransfer::Held& held) override {
    v1::PrefillRunRequest request;
    v1::PrefillRunRequest::Grant* grant = request.mutable_grant();
    grant->set_first_token(static_cast<uint64_t>(held.entries));
    grant->set_state_tokens(static_cast<uint64_t>(held.state));
    if (const auto sent = Sent(grant->mutable_transport())) {
      sent->Pass(std::move(request));
    }
  }

  void Received() override {
    v1::PrefillRunRequest request;
    request.mutable_received();
    const auto sent = Sent(nullptr);
    if (sent == nullptr) return;
    sent->Pass(std::move(request));
    sent->Follow([self = shared_from_this()] { self->HalfClose(); });
  }

  std::string transport() const override {
    MutexLock lock(mutex_);
    return agreement_.transport;
  }

  void Cancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (stream_ != nullptr) stream_->Cancel();
  }

 private:
  using SentLane = kvtransfer::ControlFaults::Lane<v1::PrefillRunRequest>;
  using ReceivedLane = kvtransfer::ControlFaults::Lane<v1::PrefillRunResponse>;

  void Run(Agreement agreement, bool kept) {
    const auto self = shared_from_this();
    const auto cut = [self](absl::Status why) { self->Cut(std::move(why)); };
    const ReceivedLane received(
        shared_->faults, [self](v1::PrefillRunResponse message) { self->OnMessage(message); }, cut);
    auto stream = Stream::Create(
        kMaxQueued,
        {.on_message =
             [received](v1::PrefillRunResponse&& message) { received.Pass(std::move(message)); },
         .on_done =
             [self, received, kept](absl::Status status) {
               received.End([self, status, kept] { self->OnDone(status, kept); });
             }});
    auto sent = std::make_shared<const SentLane>(
        shared_->faults,
        [stream](v1::PrefillRunRequest message) { stream->Write(std::move(message)); }, cut);
    v1::PrefillRunRequest request;
    v1::PrefillRunRequest::Open& open = *request.mutable_open();
    *open.mutable_attempt() = rpc::AttemptToProto(open_.attempt);
    *open.mutable_decode() = shared_->self;
    open.set_expected_prefill_incarnation(agreement.incarnation);
    open.set_semantics_hash(shared_->semantics_hash);
    open.mutable_prompt_tokens()->Add(open_.prompt->begin(), open_.prompt->end());
    *open.mutable_sampling() = rpc::SamplingToProto(open_.sampling);
    bool cancelled = false;
    {
      MutexLock lock(mutex_);
      cancelled = cancelled_;
      if (!cancelled) {
        agreement_ = std::move(agreement);
        stream_ = stream;
        sent_ = sent;
      }
    }
    if (cancelled) {
      EndWith(absl::CancelledError("cancelled before the prefill worker was asked"));
      return;
    }
    if (open_.timeout) rpc::SetTimeout(stream->context(), *open_.timeout);
    sent->Pass(std::move(request));
    stream->Start([&](grpc::ClientContext* context, auto* reactor) {
      link_->stub().async()->Run(context, reactor);
    });
  }

  bool cancelled() {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  // Null before the agreement. Used without the lock: messages may be delivered, and cut, at once.
  std::shared_ptr<const SentLane> Sent(std::string* transport) {
    MutexLock lock(mutex_);
    if (transport != nullptr) *transport = agreement_.transport;
    return sent_;
  }

  void HalfClose() {
    MutexLock lock(mutex_);
    if (stream_ != nullptr) stream_->HalfClose();
  }

  void Cut(absl::Status why) {
    MutexLock lock(mutex_);
    cut_ = std::move(why);
    if (stream_ != nullptr) stream_->Cancel();
  }

  void OnMessage(const v1::PrefillRunResponse& message) {
    switch (message.message_case()) {
      case v1::PrefillRunResponse::kAccepted:
        accepted_ = true;
        events_.on_accepted(message.accepted().prefill_incarnation());
        break;
      case v1::PrefillRunResponse::kStarted:
        said_more_ = true;
        events_.on_started();
        break;
      case v1::PrefillRunResponse::kFinished: {
        said_more_ = true;
        const v1::PrefillRunResponse::Finished& finished = message.finished();
        PrefillDone done{.first_token = finished.first_token_id(),
                         .cached_tokens = finished.cached_tokens(),
                         .queued = rpc::FromMicroseconds(finished.queue_us()),
                         .computed = rpc::FromMicroseconds(finished.compute_us())};
        if (finished.has_first_token_logprobs()) {
          done.logprobs = rpc::LogprobsFromProto(finished.first_token_logprobs());
        }
        events_.on_finished(done);
        break;
      }
      case v1::PrefillRunResponse::MESSAGE_NOT_SET:
        break;
    }
  }

  void OnDone(absl::Status status, bool kept) {
    {
      MutexLock lock(mutex_);
      if (!cut_.ok()) status = cut_;
    }
    if (!accepted_ && !status.ok()) {
      Incarnation incarnation = 0;
      {
        MutexLock lock(mutex_);
        incarnation = agreement_.incarnation;
        stream_.reset();
        sent_.reset();
      }
      // A worker that refuses for want of room, or finds the request at fault, is still the same.
      if (absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) {
        link_->Forget(incarnation);
      }
      // The agreement was with an earlier process at that address: ask the one that is there now,
      // unless it would answer for what this one has said.
      if (kept && !said_more_ && absl::IsFailedPrecondition(status) && !cancelled()) {
        Start(/*incarnation=*/0);
        return;
      }
    }
    EndWith(std::move(status));
  }

  void EndWith(absl::Status status) {
    {
      MutexLock lock(mutex_);
      sent_.reset();  // which refers to this call
    }
    PrefillEvents events = std::move(events_);
    events_ = {};
    events.on_end(std::move(status));
  }

  const std::shared_ptr<const Shared> shared_;
  const std::shared_ptr<Link> link_;
  const PrefillOpen open_;
  PrefillEvents events_;  // callbacks only, as the next two
  bool accepted_ = false;
  bool said_more_ = false;  // Started or Finished

  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Agreement agreement_ ABSL_GUARDED_BY(mutex_);
  absl::Status cut_ ABSL_GUARDED_BY(mutex_);                      // not OK: by the fault plan
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);        // null before the agreement
  std::shared_ptr<const SentLane> sent_ ABSL_GUARDED_BY(mutex_);  // to stream_
};

GrpcPrefillClient::GrpcPrefillClient(kvtransfer::Manifest manifest, v1::WorkerRef self,
                                     WorkerMetrics& metrics, const rpc::Credentials& credentials,
                                     const kvtransfer::ControlFaults* faults)
    : shared_(
          std::make_shared<const Shared>(Shared{manifest, kvtransfer::SemanticsHash(manifest),
                                                std::move(self), metrics, credentials, faults})) {}

GrpcPrefillClient::~GrpcPrefillClient() = default;

std::shared_ptr<GrpcPrefillClient::Link> GrpcPrefillClient::LinkTo(const std::string& address) {
  MutexLock lock(mutex_);
  KeptLink& kept = links_[address];
  if (kept.link == nullptr) kept.link = std::make_shared<Link>(address, shared_);
  kept.used_at = Clock::Real().Now();
  return kept.link;
}

void GrpcPrefillClient::DropDeadLinks(Clock::Duration unused) {
  std::vector<std::shared_ptr<Link>> dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  const Clock::TimePoint now = Clock::Real().Now();
  absl::erase_if(links_, [&](auto& entry) {
    KeptLink& kept = entry.second;
    const bool in_use = kept.link.use_count() > 1 || now - kept.used_at < unused;
    if (in_use || kept.link->connected()) return false;
    dropped.push_back(std::move(kept.link));
    return true;
  });
}

size_t GrpcPrefillClient::links() const {
  MutexLock lock(mutex_);
  return links_.size();
}

std::shared_ptr<PrefillCall> GrpcPrefillClient::Open(const Peer& peer, PrefillOpen open,
                                                     PrefillEvents events) {
  auto call =
      std::make_shared<Call>(shared_, LinkTo(peer.address), std::move(open), std::move(events));
  call->Start(peer.incarnation);
  return call;
}

}  // namespace baton::decode
