#include "prefill/service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "worker/role.h"

namespace baton::prefill {
namespace {

using Stream = rpc::QueuedServerBidi<v1::PrefillRunRequest, v1::PrefillRunResponse>;

// Accepted, Started and Finished: a stream never has more to say.
constexpr size_t kMaxQueued = 4;

// One Prefill.Run. gRPC's callbacks come one at a time; the RunStream half is called by others.
class RunCall final : public RunStream, public std::enable_shared_from_this<RunCall> {
 public:
  RunCall(const PrefillServiceOptions& options, Prefiller& prefiller)
      : options_(options), prefiller_(prefiller) {}

  grpc::ServerBidiReactor<v1::PrefillRunRequest, v1::PrefillRunResponse>* Start() {
    // The callbacks own this call; the stream drops them when it is done.
    auto self = shared_from_this();
    const auto cut = [self](absl::Status why) { self->stream_->Finish(std::move(why)); };
    const kvtransfer::ControlFaults::Lane<v1::PrefillRunRequest> received(
        options_.faults, [self](v1::PrefillRunRequest message) { self->OnMessage(message); }, cut);
    stream_ = Stream::Create(
        kMaxQueued,
        {.on_message =
             [received](v1::PrefillRunRequest&& message) { received.Pass(std::move(message)); },
         .on_half_close = [self, received] { received.Follow([self] { self->OnHalfClose(); }); },
         .on_done =
             [self, received](absl::Status status) {
               if (status.ok()) status = absl::CancelledError("the stream has ended");
               received.End([self, status] { self->Abandon(status); });
             }});
    sent_.emplace(
        options_.faults,
        [stream = stream_](v1::PrefillRunResponse message) { stream->Write(std::move(message)); },
        [stream = stream_](absl::Status why) { stream->Finish(std::move(why)); });
    return stream_->reactor();
  }

  void Accepted() override {
    v1::PrefillRunResponse response;
    response.mutable_accepted()->set_prefill_incarnation(options_.incarnation);
    sent_->Pass(std::move(response));
  }

  void Started(int64_t handoff_bytes) override {
    v1::PrefillRunResponse response;
    response.mutable_started()->set_handoff_bytes(handoff_bytes);
    sent_->Pass(std::move(response));
  }

  void Finished(const FinishedInfo& info) override {
    v1::PrefillRunResponse response;
    v1::PrefillRunResponse::Finished* finished = response.mutable_finished();
    finished->set_first_token_id(info.first_token);
    if (info.logprobs) {
      *finished->mutable_first_token_logprobs() = rpc::LogprobsToProto(*info.logprobs);
    }
    finished->set_cached_tokens(static_cast<uint32_t>(info.cached_tokens));
    finished->set_queue_us(rpc::ToMicroseconds(info.queued));
    finished->set_compute_us(rpc::ToMicroseconds(info.computed));
    sent_->Pass(std::move(response));
  }

  void End(absl::Status status) override {
    sent_->Follow([stream = stream_, status] { stream->Finish(status); });
  }

 private:
  void OnHalfClose() {
    if (run_ == 0 || !received_) {
      Abandon(absl::CancelledError("the decode worker left before Received"));
    }
  }

  void OnMessage(v1::PrefillRunRequest& message) {
    absl::Status status = Handle(message);
    if (status.ok()) return;
    if (run_ != 0) prefiller_.Abandon(run_, status);
    stream_->Finish(std::move(status));
  }

  // Errors of the protocol are no word about the request, which INVALID_ARGUMENT would be.
  absl::Status Handle(v1::PrefillRunRequest& message) {
    switch (message.message_case()) {
      case v1::PrefillRunRequest::kOpen:
        return run_ == 0 ? OnOpen(*message.mutable_open())
                         : absl::FailedPreconditionError("Open came twice");
      case v1::PrefillRunRequest::kGrant:
        if (run_ == 0) return absl::FailedPreconditionError("Grant came before Open");
        return OnGrant(message.grant());
      case v1::PrefillRunRequest::kReceived:
        if (run_ == 0) return absl::FailedPreconditionError("Received came before Open");
        received_ = true;
        prefiller_.Received(run_);
        return absl::OkStatus();
      case v1::PrefillRunRequest::MESSAGE_NOT_SET:
        break;
    }
    return absl::FailedPreconditionError("message is not set");
  }

  absl::Status OnOpen(v1::PrefillRunRequest::Open& open) {
    if (open.expected_prefill_incarnation() != 0 &&
        open.expected_prefill_incarnation() != options_.incarnation) {
      return absl::FailedPreconditionError(
          absl::StrFormat("prefill incarnation %016x is asked for, this is %016x",
                          open.expected_prefill_incarnation(), options_.incarnation));
    }
    if (open.semantics_hash() != options_.semantics_hash) {
      return absl::FailedPreconditionError(
          absl::StrFormat("semantics hash of the decode worker is %016x, of this worker %016x",
                          open.semantics_hash(), options_.semantics_hash));
    }
    if (open.decode().address().empty() || open.decode().incarnation() == 0) {
      return absl::FailedPreconditionError("decode: address and incarnation must be set");
    }
    RunRequest request;
    request.attempt = rpc::AttemptFromProto(open.attempt());
    request.decode_address = open.decode().address();
    request.decode_incarnation = open.decode().incarnation();
    request.prompt.assign(open.prompt_tokens().begin(), open.prompt_tokens().end());
    request.sampling = rpc::SamplingFromProto(open.sampling());
    request.stream = shared_from_this();
    absl::StatusOr<Prefiller::RunId> run = prefiller_.Submit(std::move(request));
    if (!run.ok()) return run.status();
    run_ = *run;
    return absl::OkStatus();
  }

  absl::Status OnGrant(const v1::PrefillRunRequest::Grant& grant) {
    if (std::find(options_.transports.begin(), options_.transports.end(), grant.transport()) ==
        options_.transports.end()) {
      return absl::FailedPreconditionError(absl::StrCat("transport \"", grant.transport(),
                                                        "\" is granted; expected one of ",
                                                        absl::StrJoin(options_.transports, ", ")));
    }
    prefiller_.Grant(run_,
                     {.entries = static_cast<int64_t>(grant.first_token()),
                      .state = static_cast<int64_t>(grant.state_tokens())},
                     grant.transport());
    return absl::OkStatus();
  }

  void Abandon(absl::Status why) {
    if (run_ != 0) {
      prefiller_.Abandon(run_, std::move(why));
    } else {
      stream_->Finish(std::move(why));
    }
  }

  const PrefillServiceOptions& options_;
  Prefiller& prefiller_;
  std::shared_ptr<Stream> stream_;
  std::optional<kvtransfer::ControlFaults::Lane<v1::PrefillRunResponse>> sent_;  // set by Start
  Prefiller::RunId run_ = 0;  // 0 until Open was accepted; callbacks only, as is received_
  bool received_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::PrefillRunRequest, v1::PrefillRunResponse>* PrefillService::Run(
    grpc::CallbackServerContext* /*context*/) {
  Prefiller* const prefiller = prefiller_;
  if (prefiller != nullptr) return std::make_shared<RunCall>(options_, *prefiller)->Start();
  const std::shared_ptr<Stream> refused = Stream::Create(kMaxQueued, {});
  refused->Finish(worker::StillLoading());
  return refused->reactor();
}

void PrefillService::Begin(const PrefillServiceOptions& options, Prefiller& prefiller) {
  options_ = options;
  prefiller_ = &prefiller;
}

}  // namespace baton::prefill
