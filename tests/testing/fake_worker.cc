#include "tests/testing/fake_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "baton/v1/decode.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/base/check.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/rpc/request_protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"

namespace baton::testing {
namespace {

using Writer = rpc::QueuedServerWriter<v1::DecodeGenerateResponse>;
constexpr size_t kMaxMessages = 1 << 16;
constexpr std::chrono::seconds kPatience{10};

FakeWorker::Plan Echo(const v1::DecodeGenerateRequest& request) {
  std::vector<int32_t> tokens(request.prompt_tokens().begin(), request.prompt_tokens().end());
  const size_t wanted = request.sampling().max_tokens();
  const bool cut = tokens.size() >= wanted;
  if (cut) tokens.resize(wanted);
  return {.messages =
              Answer(request, tokens, cut ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP)};
}

}  // namespace

v1::TokenLogprobs Logprobs(int32_t token, uint32_t top) {
  v1::TokenLogprobs logprobs;
  for (uint32_t i = 0; i < top; ++i) {
    v1::TokenLogprob* place = logprobs.add_top();
    place->set_token_id(token + static_cast<int32_t>(i));
    place->set_logprob(-0.5f - static_cast<float>(i));
  }
  logprobs.mutable_chosen()->set_token_id(token);
  logprobs.mutable_chosen()->set_logprob(-0.5f);
  return logprobs;
}

std::vector<v1::DecodeGenerateResponse> Answer(const v1::DecodeGenerateRequest& request,
                                               const std::vector<int32_t>& tokens,
                                               v1::FinishReason reason) {
  std::vector<v1::DecodeGenerateResponse> messages;
  for (size_t i = 0; i < tokens.size(); ++i) {
    v1::DecodeGenerateResponse& message = messages.emplace_back();
    message.add_token_ids(tokens[i]);
    if (request.sampling().has_top_logprobs()) {
      *message.add_logprobs() = Logprobs(tokens[i], request.sampling().top_logprobs());
    }
    message.mutable_usage()->set_prompt_tokens(request.prompt_tokens_size());
    message.mutable_usage()->set_completion_tokens(i + 1);
  }
  if (messages.empty()) messages.emplace_back();
  messages.back().set_finish_reason(reason);
  v1::ServedBy served;
  if (request.prefill_workers_size() > 0) {
    *served.mutable_prefill() = request.prefill_workers(0);
    served.set_handoff_bytes(1000);
  }
  *messages.front().mutable_served_by() = served;
  *messages.back().mutable_served_by() = served;
  return messages;
}

struct FakeWorker::Impl {
  class DecodeService final : public v1::Decode::CallbackService {
   public:
    explicit DecodeService(Impl* impl) : impl_(impl) {}
    grpc::ServerWriteReactor<v1::DecodeGenerateResponse>* Generate(
        grpc::CallbackServerContext*, const v1::DecodeGenerateRequest* request) override {
      return impl_->Generate(*request);
    }

   private:
    Impl* const impl_;
  };

  class ControlService final : public v1::WorkerControl::CallbackService {
   public:
    explicit ControlService(Impl* impl) : impl_(impl) {}
    grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                      const v1::GetInfoRequest*,
                                      v1::GetInfoResponse* response) override {
      {
        MutexLock lock(impl_->mutex);
        *response = impl_->info;
      }
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }

   private:
    Impl* const impl_;
  };

  grpc::ServerWriteReactor<v1::DecodeGenerateResponse>* Generate(
      const v1::DecodeGenerateRequest& request) {
    std::shared_ptr<Writer> writer = Writer::Create(kMaxMessages, [this](const absl::Status& end) {
      MutexLock lock(mutex);
      if (absl::IsCancelled(end)) ++cancelled;
      changed.NotifyAll();
    });
    Behaviour behave;
    {
      MutexLock lock(mutex);
      behave = behaviour;
      requests.push_back(request);
      changed.NotifyAll();
    }
    Plan plan = behave(request);
    for (v1::DecodeGenerateResponse& message : plan.messages) {
      if (message.has_served_by()) {
        MutexLock lock(mutex);
        *message.mutable_served_by()->mutable_decode() = info.self();
      }
      writer->Write(std::move(message));
    }
    MutexLock lock(mutex);
    if (plan.hang && !released) {
      hanging.emplace_back(writer, plan.status);
    } else {
      writer->Finish(plan.status);
    }
    return writer->reactor();
  }

  DecodeService decode{this};
  ControlService control{this};
  std::unique_ptr<rpc::GrpcServer> server;

  mutable Mutex mutex;
  mutable CondVar changed;
  Behaviour behaviour ABSL_GUARDED_BY(mutex) = Echo;
  v1::GetInfoResponse info ABSL_GUARDED_BY(mutex);
  std::vector<v1::DecodeGenerateRequest> requests ABSL_GUARDED_BY(mutex);
  std::vector<std::pair<std::shared_ptr<Writer>, absl::Status>> hanging ABSL_GUARDED_BY(mutex);
  size_t cancelled ABSL_GUARDED_BY(mutex) = 0;
  bool released ABSL_GUARDED_BY(mutex) = false;
};

FakeWorker::FakeWorker(v1::WorkerRole role) : impl_(std::make_unique<Impl>()) {
  auto server =
      rpc::GrpcServer::Start({.listen = "127.0.0.1:0",
                              .services = {&impl_->decode, &impl_->control},
                              .service_names = {"baton.v1.Decode", "baton.v1.WorkerControl"}});
  BATON_CHECK(server.ok()) << server.status();
  impl_->server = *std::move(server);
  MutexLock lock(impl_->mutex);
  impl_->info.set_role(role);
  impl_->info.mutable_self()->set_address(address());
  impl_->info.mutable_self()->set_incarnation(NewIncarnation());
  impl_->info.set_model("fake");
  impl_->info.set_semantics_hash(1);
  impl_->info.set_max_context_tokens(4096);
  impl_->info.set_request_protocol(rpc::kRequestProtocol);
  impl_->info.set_ready(true);
}

FakeWorker::~FakeWorker() {
  Release();
  impl_->server->Shutdown(std::chrono::nanoseconds::zero());
}

std::string FakeWorker::address() const {
  return absl::StrCat("127.0.0.1:", impl_->server->port());
}

v1::WorkerRef FakeWorker::self() const {
  MutexLock lock(impl_->mutex);
  return impl_->info.self();
}

void FakeWorker::SetBehaviour(Behaviour behaviour) {
  MutexLock lock(impl_->mutex);
  impl_->behaviour = std::move(behaviour);
}

void FakeWorker::Release() {
  MutexLock lock(impl_->mutex);
  impl_->released = true;
  for (auto& [writer, status] : impl_->hanging) writer->Finish(status);
  impl_->hanging.clear();
}

void FakeWorker::SetInfo(const std::function<void(v1::GetInfoResponse&)>& change) {
  MutexLock lock(impl_->mutex);
  change(impl_->info);
}

std::vector<v1::DecodeGenerateRequest> FakeWorker::requests() const {
  MutexLock lock(impl_->mutex);
  return impl_->requests;
}

bool FakeWorker::WaitForRequests(size_t count) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(impl_->mutex);
  while (impl_->requests.size() < count) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    impl_->changed.WaitFor(impl_->mutex, left);
  }
  return true;
}

bool FakeWorker::WaitForCancelled(size_t count) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(impl_->mutex);
  while (impl_->cancelled < count) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    impl_->changed.WaitFor(impl_->mutex, left);
  }
  return true;
}

}  // namespace baton::testing
