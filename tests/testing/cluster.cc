#include "tests/testing/cluster.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "baton/v1/decode.grpc.pb.h"
#include "common/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/convert.h"
#include "common/status_macros.h"

namespace baton::testing {
namespace {

constexpr char kModelDir[] = BATON_SOURCE_DIR "/models/needle-17m";
constexpr char kAnyPort[] = "127.0.0.1:0";

void Small(worker::WorkerConfig& config) {
  config.listen = kAnyPort;
  config.metrics_listen.clear();  // Metrics::Text() does
  config.engine.model_dir = kModelDir;
  config.engine.threads = 1;  // all workers share the machine
  config.engine.page_tokens = 128;
  config.engine.pages = 64;
  config.engine.slots = 8;
  config.engine.step_tokens = 512;
  config.engine.chunk_tokens = 256;
  config.engine.prefix_cache = 0;  // tests ask the same again and again, and mean it
}

absl::Status CheckEmpty(const std::string& name, const WorkerLoad& load) {
  const CacheOccupancy& cache = load.cache;
  if (cache.pages_free + cache.pages_prefix == cache.pages_total &&
      cache.slots_free == cache.slots_total) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(name, ": ", cache.pages_free + cache.pages_prefix, " of ", cache.pages_total,
                   " pages and ", cache.slots_free, " of ", cache.slots_total,
                   " slots are free; sequences hold ", cache.pages_sequences, ", transfers ",
                   cache.pages_transfer, ", quarantine ", cache.pages_quarantine));
}

absl::Status CheckIdle(const std::string& name, const worker::Worker& worker) {
  const auto idle = [&] {
    const WorkerLoad load = worker.load();
    return load.running == 0 && load.waiting == 0 && CheckEmpty(name, load).ok();
  };
  if (!Eventually(idle)) {
    BATON_RETURN_IF_ERROR(CheckEmpty(name, worker.load()));
    return absl::InternalError(absl::StrCat(name, ": ", worker.load().running, " running, ",
                                            worker.load().waiting, " waiting"));
  }
  return worker.AuditCache();
}

}  // namespace

struct Generation::State {
  std::shared_ptr<rpc::ServerStreamCall<v1::DecodeGenerateResponse>> call;
  Mutex mutex;
  CondVar changed;
  Outcome outcome ABSL_GUARDED_BY(mutex);
  bool done ABSL_GUARDED_BY(mutex) = false;

  void OnMessage(const v1::DecodeGenerateResponse& message) {
    MutexLock lock(mutex);
    outcome.tokens.insert(outcome.tokens.end(), message.token_ids().begin(),
                          message.token_ids().end());
    for (const v1::TokenLogprobs& logprobs : message.logprobs()) {
      outcome.logprobs.push_back(rpc::LogprobsFromProto(logprobs));
    }
    outcome.usage = message.usage();
    outcome.finish = message.finish_reason();
    if (message.has_served_by()) outcome.served_by = message.served_by();
    changed.NotifyAll();
  }
  void OnDone(absl::Status status) {
    MutexLock lock(mutex);
    outcome.status = std::move(status);
    done = true;
    changed.NotifyAll();
  }
  bool WaitUntil(const std::function<bool()>& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds::zero()) return false;
      changed.WaitFor(mutex, left);
    }
    return true;
  }
};

Generation::Generation(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<Generation> Generation::Start(const std::string& decode_address,
                                              const Request& request) {
  auto state = std::make_shared<State>();
  state->call = rpc::ServerStreamCall<v1::DecodeGenerateResponse>::Create(
      {.on_message = [state](v1::DecodeGenerateResponse&& message) { state->OnMessage(message); },
       .on_done = [state](absl::Status status) { state->OnDone(std::move(status)); }});
  v1::DecodeGenerateRequest proto;
  *proto.mutable_attempt() = rpc::AttemptToProto({.request = RequestId::Random(), .attempt = 1});
  proto.mutable_prompt_tokens()->Add(request.prompt.begin(), request.prompt.end());
  *proto.mutable_sampling() = rpc::SamplingToProto(request.sampling);
  for (const std::string& address : request.prefill_workers) {
    proto.add_prefill_workers()->set_address(address);
  }
  if (request.timeout) rpc::SetTimeout(state->call->context(), *request.timeout);
  const auto stub =
      v1::Decode::NewStub(rpc::MakeChannel(decode_address, rpc::ChannelKind::kControl));
  state->call->Start([&](grpc::ClientContext* context, auto* reactor) {
    context->set_wait_for_ready(true);
    stub->async()->Generate(context, &proto, reactor);
  });
  return std::unique_ptr<Generation>(new Generation(std::move(state)));
}

Generation::~Generation() {
  Cancel();
  Wait();
  state_->call.reset();
}

bool Generation::WaitForTokens(size_t count) {
  MutexLock lock(state_->mutex);
  state_->WaitUntil([&] { return state_->done || state_->outcome.tokens.size() >= count; });
  return state_->outcome.tokens.size() >= count;
}

void Generation::Cancel() { state_->call->Cancel(); }

Outcome Generation::Wait() {
  MutexLock lock(state_->mutex);
  if (!state_->WaitUntil([&] { return state_->done; })) {
    Outcome late = state_->outcome;
    late.status = absl::DeadlineExceededError("the request did not end");
    return late;
  }
  return state_->outcome;
}

absl::StatusOr<std::unique_ptr<worker::Worker>> Cluster::StartPrefill(int index,
                                                                      const std::string& listen) {
  prefill::PrefillConfig config;
  Small(config);
  if (options_.tune_prefill) options_.tune_prefill(index, config);
  config.listen = listen;
  return prefill::StartPrefillWorker(config);
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  for (int i = 0; i < options.prefill; ++i) {
    BATON_ASSIGN_OR_RETURN(auto worker, cluster->StartPrefill(i, kAnyPort));
    cluster->prefill_.push_back(std::move(worker));
  }
  for (int i = 0; i < options.decode; ++i) {
    decode::DecodeConfig config;
    Small(config);
    config.local_prefill_tokens = 0;
    if (options.tune_decode) options.tune_decode(i, config);
    BATON_ASSIGN_OR_RETURN(auto worker, decode::StartDecodeWorker(config));
    cluster->decode_.push_back(std::move(worker));
  }
  if (options.router) {
    router::RouterConfig config;
    config.listen = config.grpc_listen = config.metrics_listen = kAnyPort;
    config.model_dir = kModelDir;
    config.prefill_workers = cluster->prefill_addresses();
    for (const auto& worker : cluster->decode_) config.decode_workers.push_back(worker->address());
    BATON_ASSIGN_OR_RETURN(cluster->router_, router::Router::Start(config));
  }
  return cluster;
}

// The router first: it cancels what it has open.
Cluster::~Cluster() {
  router_.reset();
  decode_.clear();
  prefill_.clear();
}

std::vector<std::string> Cluster::prefill_addresses() const {
  std::vector<std::string> addresses;
  for (const auto& worker : prefill_) addresses.push_back(worker->address());
  return addresses;
}

absl::Status Cluster::RestartPrefill(int index) {
  const std::string address = prefill_.at(index)->address();
  prefill_.at(index).reset();
  BATON_ASSIGN_OR_RETURN(prefill_.at(index), StartPrefill(index, address));
  return absl::OkStatus();
}

std::unique_ptr<Generation> Cluster::Generate(Generation::Request request, int decode_index) {
  return Generation::Start(decode(decode_index).address(), request);
}

Outcome Cluster::Run(std::vector<int32_t> prompt, const SamplingParams& sampling) {
  return Generate({.prompt = std::move(prompt),
                   .sampling = sampling,
                   .prefill_workers = prefill_addresses()})
      ->Wait();
}

Outcome Cluster::RunLocally(std::vector<int32_t> prompt, const SamplingParams& sampling) {
  return Generate({.prompt = std::move(prompt), .sampling = sampling})->Wait();
}

absl::Status Cluster::CheckIdleAndEmpty() {
  for (size_t i = 0; i < prefill_.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckIdle(absl::StrCat("prefill ", i), *prefill_[i]));
  }
  for (size_t i = 0; i < decode_.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckIdle(absl::StrCat("decode ", i), *decode_[i]));
  }
  return absl::OkStatus();
}

}  // namespace baton::testing
