#include "engine/engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "engine/engine_impl.h"
#include "engine/model/checkpoint.h"

namespace baton::engine {
namespace {

void CheckParallel(const ParallelOptions& parallel, ErrorList& errors) {
  const auto refuse = [&errors](auto&&... parts) {
    errors.Add(absl::InvalidArgumentError(absl::StrCat(parts...)));
  };
  if (parallel.rank < 0 || parallel.rank >= parallel.size) {
    refuse("expert_parallel_rank is ", parallel.rank, ", must be in [0, ", parallel.size,
           "), as many as expert_parallel_size says");
  }
  if (parallel.size > 1 && parallel.address.empty()) {
    refuse("expert_parallel_address is missing: where rank 0 of ", parallel.size,
           " listens for the others");
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(parallel.address);
  if (parallel.size > 1 && address.ok() && address->port == 0) {
    refuse("expert_parallel_address is ", parallel.address,
           ", must have a port that all ranks know");
  }
}

void CheckOptions(const EngineOptions& options, const ModelConfig& config, ErrorList& errors) {
  const auto refuse = [&errors](auto&&... parts) {
    errors.Add(absl::InvalidArgumentError(absl::StrCat(parts...)));
  };
  if (options.draft_tokens < 0 || options.draft_tokens >= options.cache.rollback_rows) {
    refuse("draft_tokens is ", options.draft_tokens, ", must be in [0, rollback_rows), which is ",
           options.cache.rollback_rows);
  }
  if (options.draft_tokens > 0 && !config.has_mtp()) {
    refuse("draft_tokens is ", options.draft_tokens,
           ", must be 0: the model has no MTP block (num_nextn_predict_layers is 0)");
  }
  if (options.forward.index_topk < 0) {
    refuse("index_topk is ", options.forward.index_topk,
           ", must be >= 0 (0: the checkpoint's value)");
  }
  const ParallelOptions& parallel = options.parallel;
  CheckParallel(parallel, errors);
  if (parallel.size < 1 || parallel.size > config.n_routed_experts) {
    refuse("expert_parallel_size is ", parallel.size, ", must be in [1, ", config.n_routed_experts,
           "], the model's experts");
  }
  if (options.forward.threads < 0) {
    refuse("threads is ", options.forward.threads, ", must be >= 0 (0: all cores)");
  }
}

absl::Status CheckPrompt(const std::vector<int32_t>& prompt, const ModelConfig& config,
                         int64_t max_sequence_tokens) {
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens + 1 > max_sequence_tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("the prompt has ", tokens, " tokens; with one output token it exceeds the ",
                     max_sequence_tokens, " that a sequence can have here"));
  }
  for (int64_t i = 0; i < tokens; ++i) {
    if (prompt[i] < 0 || prompt[i] >= config.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("prompt token ", i, " is ", prompt[i],
                                                     ", outside the vocabulary of ",
                                                     config.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogitBias(const SamplingParams& sampling, const ModelConfig& config) {
  for (const LogitBias& entry : sampling.logit_bias) {
    if (entry.token >= 0 && entry.token < config.vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("logit_bias has the token ", entry.token,
                                                   ", outside the vocabulary of ",
                                                   config.vocab_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const EngineOptions& options) {
  if (options.dummy_weights) return Checkpoint::OpenDummy(options.model_dir, options.num_layers);
  if (options.num_layers > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_layers is ", options.num_layers, ", only dummy weights can do with fewer layers"));
  }
  return Checkpoint::Open(options.model_dir);
}

// Bits that depend on a batch would pass from one worker to the other with the pages.
std::string NumericsName(const ForwardOptions& options) {
  return absl::StrCat(options.numerics == Numerics::kReference ? "reference" : "exact",
                      options.deterministic ? ", deterministic" : "");
}

const char* EntryFormatName(kernels::EntryFormat format) {
  switch (format) {
    case kernels::EntryFormat::kBf16:
      return "bf16";
    case kernels::EntryFormat::kFp8Packed:
    case kernels::EntryFormat::kFp8Index:
      return "fp8";
    case kernels::EntryFormat::kFp4Index:
      return "fp4";
  }
  return "unknown";
}

std::vector<std::pair<std::string, std::string>> SemanticsOf(const EngineOptions& options,
                                                             const ModelConfig& config,
                                                             const std::string& model_hash) {
  return {
      {"model", model_hash},
      {"numerics", NumericsName(options.forward)},
      {"index_topk", absl::StrCat(options.forward.TopkFor(config))},
      {"kv_format", EntryFormatName(options.cache.kv_format)},
      {"index_format", EntryFormatName(options.cache.index_format)},
      {"mtp_layers", absl::StrCat(config.num_nextn_predict_layers)},
  };
}

absl::StatusOr<int64_t> PagesThatFit(const CacheGeometry& geometry, double fraction,
                                     const Backend& backend) {
  const std::optional<int64_t> room = backend.CacheRoom(fraction);
  if (!room) return CacheOptions{}.pages;
  const int64_t slots = geometry.options.slots * geometry.slot_bytes();
  const int64_t pages = (*room - slots) / geometry.page_bytes();
  if (pages > 0) return pages;
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for a cache: memory_fraction ", fraction, " leaves ", *room >> 20,
                   " MiB, ", geometry.options.slots, " slots take ", slots >> 20,
                   " MiB and a page ", geometry.page_bytes() >> 10, " KiB"));
}

absl::StatusOr<CacheGeometry> GeometryOf(const EngineOptions& options, const ModelConfig& config) {
  CacheOptions cache = options.cache;
  if (cache.pages == 0) cache.pages = 1;  // until it is known how many fit
  return MakeCacheGeometry(config, cache);
}

void LogCache(const CacheGeometry& geometry) {
  constexpr int64_t kMiB = 1 << 20;
  spdlog::info("cache: {} pages of {} tokens, {} MiB; {} slots, {} MiB", geometry.options.pages,
               geometry.options.page_tokens, geometry.options.pages * geometry.page_bytes() / kMiB,
               geometry.options.slots, geometry.options.slots * geometry.slot_bytes() / kMiB);
}

// Null for a worker that is alone.
absl::StatusOr<std::unique_ptr<ExpertGroup>> JoinGroup(const EngineOptions& options,
                                                       const ModelConfig& config, Facts facts) {
  if (options.parallel.size == 1) return nullptr;
  facts.emplace_back("version", Version());
  facts.emplace_back("device", options.device);
  absl::StatusOr<std::unique_ptr<ExpertGroup>> group =
      ExpertGroup::Join({.size = options.parallel.size,
                         .rank = options.parallel.rank,
                         .address = options.parallel.address,
                         .facts = std::move(facts),
                         .max_positions = config.max_position_embeddings,
                         .stall = options.parallel.stall,
                         .start = options.parallel.start});
  BATON_RETURN_IF_ERROR(group.status())
      << "expert-parallel rank " << options.parallel.rank << " of " << options.parallel.size;
  return group;
}

}  // namespace

Sequence::Sequence(std::vector<int32_t> prompt, SamplingParams sampling,
                   std::unique_ptr<State> state)
    : tokens_(std::move(prompt)),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      sampling_(std::move(sampling)),
      state_(std::move(state)) {
  if (SequenceAdjustments::Wanted(sampling_)) {
    adjustments_.emplace(sampling_, prompt_tokens_ - sampling_.resumed_tokens);
  }
}

Sequence::~Sequence() = default;

int64_t Sequence::reserved_tokens() const {
  return state_->pages.size() * state_->storage.geometry().options.page_tokens;
}

std::span<const int32_t> Sequence::page_ids() const { return state_->pages.ids(); }

SequenceRecords& Sequence::records() { return *state_->records; }

int64_t Engine::Impl::max_sequence_tokens() const {
  const CacheOptions& cache = geometry().options;
  return std::min<int64_t>(model->config().max_position_embeddings,
                           cache.pages * cache.page_tokens);
}

int64_t Engine::Impl::DraftsFor(int64_t tokens, int64_t max_tokens) const {
  return std::min<int64_t>(options.draft_tokens, max_tokens - tokens - 1);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(options));
  const ModelConfig& config = checkpoint.config();
  ErrorList errors;
  CheckOptions(options, config, errors);
  BATON_RETURN_IF_ERROR(errors.ToStatus());
  BATON_ASSIGN_OR_RETURN(CacheGeometry geometry, GeometryOf(options, config));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(options.device));
  const std::string hash = checkpoint.Hash();
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<ExpertGroup> group,
                         JoinGroup(options, config, SemanticsOf(options, config, hash)));
  ForwardOptions forward = options.forward;
  forward.group = group.get();
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, backend->LoadModel(checkpoint, forward));
  EngineOptions sized = options;
  if (options.cache.pages == 0) {
    BATON_ASSIGN_OR_RETURN(sized.cache.pages,
                           PagesThatFit(geometry, options.memory_fraction, *backend));
    geometry.options.pages = sized.cache.pages;
  }
  sized.prefix.pages =
      std::min(options.prefix.pages, sized.cache.pages * options.prefix_percent / 100);
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<CacheStorage> storage, backend->NewCache(geometry));
  LogCache(geometry);
  if (group != nullptr) {
    BATON_RETURN_IF_ERROR(group->Agree({.kind = PassKind::kStart}).status());
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      sized, hash, std::move(group), std::move(backend), std::move(model), std::move(storage))));
}

void Engine::Check(const EngineOptions& options, ErrorList& errors) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(options);
  errors.Add(checkpoint.status());
  if (!checkpoint.ok()) return CheckParallel(options.parallel, errors);
  CheckOptions(options, checkpoint->config(), errors);
  errors.Add(GeometryOf(options, checkpoint->config()).status());
}

absl::Status Engine::CheckRequest(const std::vector<int32_t>& prompt,
                                  const SamplingParams& sampling) const {
  BATON_RETURN_IF_ERROR(CheckPrompt(prompt, model_config(), max_sequence_tokens()));
  BATON_RETURN_IF_ERROR(CheckLogitBias(sampling, model_config()));
  return ValidateSamplingParams(sampling);
}

absl::StatusOr<std::unique_ptr<Sequence>> Engine::NewSequence(std::vector<int32_t> prompt,
                                                              const SamplingParams& sampling,
                                                              int64_t reserve_tokens,
                                                              PrefixUse use) {
  BATON_RETURN_IF_ERROR(CheckRequest(prompt, sampling));
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (reserve_tokens < prompt_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("reserve_tokens is ", reserve_tokens,
                                                   ", less than the prompt's ", prompt_tokens));
  }
  const int64_t tokens =
      std::min(reserve_tokens, impl_->LimitsOf(prompt_tokens).MaxTokens(sampling));
  auto state = std::make_unique<Sequence::State>(*impl_->storage, impl_->ledger,
                                                 geometry().PagesFor(max_sequence_tokens()));
  BATON_ASSIGN_OR_RETURN(
      const CacheLedger::Opening opening,
      impl_->ledger.Open(prompt, use, geometry().PagesFor(tokens), state->pages));
  state->slot = opening.slot;
  state->records = impl_->backend->NewRecords(*impl_->storage, state->pages, state->slot);
  std::unique_ptr<Sequence> sequence(new Sequence(std::move(prompt), sampling, std::move(state)));
  impl_->Begin(*sequence, use, opening);
  return sequence;
}

absl::Status Engine::Grow(Sequence& sequence, int64_t tokens) {
  const int64_t limit = impl_->LimitsOf(sequence.prompt_tokens()).MaxTokens(sequence.sampling());
  const int64_t pages =
      geometry().PagesFor(std::min(tokens, limit)) - sequence.state_->pages.size();
  return pages > 0 ? impl_->ledger.Grow(pages, sequence.state_->pages) : absl::OkStatus();
}

void Engine::AdoptHandoff(Sequence& sequence, int32_t first_token) {
  BATON_CHECK(sequence.computed_ == 0 && std::ssize(sequence.tokens_) == sequence.prompt_tokens_)
      << sequence.computed_ << " positions of " << sequence.prompt_tokens_ << " are computed";
  BATON_CHECK(first_token >= 0 && first_token < model_config().vocab_size) << first_token;
  sequence.computed_ = sequence.prompt_tokens_;
  sequence.tokens_.push_back(first_token);
  sequence.state_->mtp_rows = sequence.prompt_tokens_ - 1;
  sequence.state_->forwarded = sequence.prompt_tokens_;
  // Others may share its full pages from now on. The state there is in the past of its rings.
  impl_->ledger.Keep(std::span(sequence.tokens_).first(sequence.prompt_tokens_),
                     sequence.state_->pages, nullptr);
}

StepOutput::Finish Engine::FinishOf(const Sequence& sequence) const {
  return FinishAfter(sequence.tokens_.back(), std::ssize(sequence.tokens_), sequence.sampling_,
                     impl_->LimitsOf(sequence.prompt_tokens_));
}

int64_t Engine::PositionsAfterDecode(const Sequence& sequence) const {
  const int64_t limit = impl_->LimitsOf(sequence.prompt_tokens_).MaxTokens(sequence.sampling_);
  return sequence.computed_ + 1 + impl_->DraftsFor(std::ssize(sequence.tokens_), limit);
}

void Engine::OnCall(std::function<void()> called) {
  if (impl_->group != nullptr) impl_->group->OnStep(std::move(called));
}
void Engine::Rest() {
  if (impl_->group != nullptr) impl_->group->Rest();
}
void Engine::JoinPass() { impl_->model->JoinPass(); }
bool Engine::LeaveGroup(std::chrono::nanoseconds timeout) {
  return impl_->group == nullptr || impl_->group->Leave(timeout);
}

CacheUsage Engine::usage() const { return impl_->ledger.usage(); }
bool Engine::has_prefix_cache() const { return impl_->options.prefix.pages > 0; }
int64_t Engine::prefix_pages_evicted() const { return impl_->ledger.prefix_pages_evicted(); }
absl::Status Engine::AuditCache() const { return impl_->ledger.Audit(); }
const ModelConfig& Engine::model_config() const { return impl_->model->config(); }
const CacheGeometry& Engine::geometry() const { return impl_->geometry(); }
int64_t Engine::max_sequence_tokens() const { return impl_->max_sequence_tokens(); }

std::vector<std::pair<std::string, std::string>> Engine::semantics() const {
  return SemanticsOf(impl_->options, model_config(), impl_->model_hash);
}

}  // namespace baton::engine
