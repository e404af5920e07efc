#include "router/dispatch/generation_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "router/field_at_fault.h"
#include "router/policy/route.h"

namespace baton::router {
namespace {

// Of one token's, with its spelling: as JSON in memory, and then as text.
constexpr int64_t kBytesOfLogprob = 512;

absl::Status CheckTokenIds(std::span<const int32_t> ids, int32_t vocab_size,
                           const std::string& field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return AtFault(
          field, absl::InvalidArgumentError(absl::StrCat(field, "[", i, "] is ", ids[i],
                                                         ", token ids are 0 to ", vocab_size - 1)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogitBias(std::span<const LogitBias> biases, int32_t vocab_size) {
  for (const LogitBias& entry : biases) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return AtFault("logit_bias", absl::InvalidArgumentError(
                                       absl::StrCat("logit_bias has the token id ", entry.token,
                                                    ", token ids are 0 to ", vocab_size - 1)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TextSegment>> RenderChat(const ChatInput& chat,
                                                    const ServedModel& model) {
  RenderOptions options;
  options.thinking_mode = chat.thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  options.reasoning_effort = chat.effort;
  static const ChatPrompts kNone;
  return RenderPrompt(chat.messages, model.chat_prompts ? *model.chat_prompts : kNone, options);
}

bool HasTools(const ChatInput& chat) {
  return std::ranges::any_of(chat.messages, [](const Message& m) { return !m.tools.empty(); });
}

// The texts of chat_prompts.json that a conversation cannot be rendered without.
absl::Status CheckChatPrompts(const ChatInput& chat, const ServedModel& model) {
  if (model.chat_prompts) return absl::OkStatus();
  const bool max_effort = chat.thinking && chat.effort == ReasoningEffort::kMax;
  if (!HasTools(chat) && !max_effort) return absl::OkStatus();
  return AtFault(
      HasTools(chat) ? "tools" : "reasoning_effort",
      absl::InvalidArgumentError(absl::StrCat(
          HasTools(chat) ? "tools" : "reasoning effort max",
          " cannot be used: the model's directory has no chat_prompts.json; who runs "
          "the router makes it with `baton import-prompts MODEL/encoding/encoding_dsv4.py`")));
}

SamplingParams ToSampling(const RequestedSampling& requested, const ServedModel& model) {
  return {.temperature = requested.temperature.value_or(model.temperature),
          .top_p = requested.top_p.value_or(model.top_p),
          .top_k = requested.top_k.value_or(model.top_k),
          .min_p = requested.min_p.value_or(0.0f),
          .presence_penalty = requested.presence_penalty.value_or(0.0f),
          .frequency_penalty = requested.frequency_penalty.value_or(0.0f),
          .repetition_penalty = requested.repetition_penalty.value_or(1.0f),
          .logit_bias = requested.logit_bias,
          // Chosen here, so that every attempt samples alike.
          .seed = requested.seed ? *requested.seed : RequestId::Random().low,
          .min_tokens = requested.min_tokens,
          .stop_token_ids = requested.stop_token_ids,
          .ignore_eos = requested.ignore_eos,
          .top_logprobs = requested.top_logprobs};
}

}  // namespace

GenerationService::GenerationService(const ServedModel* model, GenerationEnvironment* environment,
                                     GenerationServiceOptions options)
    : model_(model), environment_(environment), options_(options) {}

GenerationService::~GenerationService() {
  BATON_CHECK(gate_.inside() == 0) << "generations outlive their service";
}

absl::StatusOr<std::vector<Gate::Pass>> GenerationService::Admit(size_t count) {
  const size_t most = static_cast<size_t>(options_.max_concurrent_requests);
  if (count > most) {
    return AtFault(
        "n", absl::InvalidArgumentError(absl::StrCat("n is ", count, ", and no more than ", most,
                                                     " choices can be under way at a time")));
  }
  std::vector<Gate::Pass> passes = gate_.TryEnter(count, most);
  if (!passes.empty()) return passes;
  if (gate_.closed()) return absl::UnavailableError("the router is shutting down");
  return absl::ResourceExhaustedError(
      absl::StrCat("the router is full: at most ", most, " requests run at a time"));
}

// Refuses before tokenizing, which takes a second a megabyte, a text that cannot be short enough:
// no token stands for more bytes than the longest.
absl::Status GenerationService::CheckTextLength(size_t bytes) const {
  const size_t most =
      options_.max_prompt_tokens > 0 ? options_.max_prompt_tokens : LongestContext(*workers());
  if (most == 0 || bytes / model_->tokenizer.longest_token_bytes() <= most) return absl::OkStatus();
  return AtFault("prompt", absl::OutOfRangeError(
                               absl::StrCat("the prompt has ", bytes, " bytes, which is more than ",
                                            most, " tokens, the most that are accepted")));
}

absl::StatusOr<std::vector<int32_t>> GenerationService::Tokenize(
    const GenerationRequest& request) const {
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    BATON_RETURN_IF_ERROR(CheckTextLength(text->size()));
    return model_->tokenizer.Encode(*text);
  }
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.input)) {
    BATON_RETURN_IF_ERROR(CheckTokenIds(*ids, model_->vocab_size, "prompt"));
    return *ids;
  }
  const ChatInput& chat = std::get<ChatInput>(request.input);
  BATON_RETURN_IF_ERROR(CheckChatPrompts(chat, *model_));
  const absl::StatusOr<std::vector<TextSegment>> segments = RenderChat(chat, *model_);
  if (!segments.ok()) return AtFault("prompt", segments.status());
  size_t bytes = 0;
  for (const TextSegment& segment : *segments) bytes += segment.text.size();
  BATON_RETURN_IF_ERROR(CheckTextLength(bytes));
  return model_->tokenizer.Encode(*segments);
}

// An answer that is not streamed is put together in memory, and log-probabilities are by far the
// most of it. One that may grow too long by its own max_tokens is refused now; without, once it
// has.
absl::Status GenerationService::BoundLogprobs(size_t choices, GenerationSpec* spec) const {
  if (spec->stream || !spec->sampling.top_logprobs) return absl::OkStatus();
  const int64_t each =
      static_cast<int64_t>(choices) * (1 + *spec->sampling.top_logprobs) * kBytesOfLogprob;
  spec->max_held_tokens = static_cast<size_t>(options_.max_logprobs_bytes / each);
  if (spec->max_tokens.value_or(0) <= spec->max_held_tokens) return absl::OkStatus();
  const bool chat = spec->endpoint == Endpoint::kChatCompletions;
  return AtFault("logprobs",
                 absl::InvalidArgumentError(absl::StrCat(
                     "the log-probabilities of ", choices, " choices (n) of up to ",
                     *spec->max_tokens, " tokens (max_tokens) with ", *spec->sampling.top_logprobs,
                     " others at each (", chat ? "top_logprobs" : "logprobs", ") may take ",
                     *spec->max_tokens * each, " bytes, at most ", options_.max_logprobs_bytes,
                     " are held: ask for less, or for a stream")));
}

absl::StatusOr<GenerationSpec> GenerationService::MakeSpec(const GenerationRequest& request) const {
  if (!request.model.empty() && request.model != model_->name) {
    return AtFault("model", absl::NotFoundError(absl::StrCat(
                                "the model ", Quoted(request.model),
                                " does not exist; this router serves '", model_->name, "'")));
  }
  BATON_RETURN_IF_ERROR(
      CheckTokenIds(request.sampling.stop_token_ids, model_->vocab_size, "stop_token_ids"));
  BATON_RETURN_IF_ERROR(CheckLogitBias(request.sampling.logit_bias, model_->vocab_size));
  BATON_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, Tokenize(request));
  if (prompt.empty()) {
    return AtFault("prompt", absl::InvalidArgumentError("the prompt is empty"));
  }
  if (options_.max_prompt_tokens > 0 && prompt.size() > options_.max_prompt_tokens) {
    return AtFault("prompt", absl::OutOfRangeError(
                                 absl::StrCat("the prompt has ", prompt.size(), " tokens, at most ",
                                              options_.max_prompt_tokens, " are accepted")));
  }

  GenerationSpec spec;
  spec.id = request.id;
  spec.client_id = request.client_id;
  spec.endpoint = request.endpoint;
  spec.prompt_tokens = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  spec.sampling = ToSampling(request.sampling, *model_);
  spec.max_tokens = request.sampling.max_tokens;
  spec.text.tokenizer = &model_->tokenizer;
  spec.text.stop = request.stop;
  if (const auto* chat = std::get_if<ChatInput>(&request.input)) {
    spec.text.chat = {.starts_in_reasoning = chat->thinking, .finds_tool_calls = HasTools(*chat)};
    spec.text.keep_ids = {model_->markup.think_end, model_->markup.dsml};
  }
  spec.stream = request.stream;
  return spec;
}

// [PD-1] router: admit, render the chat, tokenize
absl::StatusOr<std::vector<std::shared_ptr<Generation>>> GenerationService::TryPrepare(
    const GenerationRequest& request, std::vector<std::shared_ptr<GenerationSink>> sinks,
    std::chrono::nanoseconds timeout) {
  const Clock::TimePoint arrival = environment_->clock->Now();
  BATON_ASSIGN_OR_RETURN(std::vector<Gate::Pass> passes, Admit(sinks.size()));
  BATON_ASSIGN_OR_RETURN(GenerationSpec spec, MakeSpec(request));
  BATON_RETURN_IF_ERROR(BoundLogprobs(sinks.size(), &spec));
  spec.arrival = arrival;
  spec.deadline = arrival + std::min(timeout, options_.request_timeout);
  RouterMetrics& metrics = *environment_->metrics;
  metrics.stage_duration[RouterStage::kTokenize].Observe(
      Seconds(environment_->clock->Now() - arrival));
  metrics.prompt_tokens.Increment(static_cast<double>(spec.prompt_tokens->size()));

  std::vector<std::shared_ptr<Generation>> generations;
  for (size_t i = 0; i < sinks.size(); ++i) {
    generations.push_back(Make(spec, std::move(sinks[i]), std::move(passes[i])));
    spec.id = RequestId::Random();
    spec.starts_late = true;
    ++spec.sampling.seed;
  }
  return generations;
}

std::shared_ptr<Generation> GenerationService::Make(GenerationSpec spec,
                                                    std::shared_ptr<GenerationSink> sink,
                                                    Gate::Pass pass) {
  const RequestId id = spec.id;
  auto shared_pass = std::make_shared<Gate::Pass>(std::move(pass));
  auto generation = std::make_shared<Generation>(environment_, std::move(spec), std::move(sink),
                                                 [this, id, shared_pass] {
                                                   {
                                                     MutexLock lock(mutex_);
                                                     running_.erase(id);
                                                   }
                                                   *shared_pass = {};
                                                 });
  MutexLock lock(mutex_);
  running_.emplace(id, generation);
  return generation;
}

absl::StatusOr<std::vector<std::shared_ptr<Generation>>> GenerationService::Prepare(
    GenerationRequest request, std::vector<std::shared_ptr<GenerationSink>> sinks,
    std::chrono::nanoseconds timeout) {
  auto generations = TryPrepare(request, std::move(sinks), timeout);
  if (generations.ok()) return generations;
  environment_->metrics->CountRequest(request.endpoint, OutcomeOf(generations.status()));
  // To clients RESOURCE_EXHAUSTED (429) means that they ask too often; it is the router that is
  // full.
  return absl::IsResourceExhausted(generations.status())
             ? absl::UnavailableError(generations.status().message())
             : generations.status();
}

absl::StatusOr<std::shared_ptr<Generation>> GenerationService::Start(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink,
    std::chrono::nanoseconds timeout) {
  BATON_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<Generation>> generations,
                         Prepare(std::move(request), {std::move(sink)}, timeout));
  generations.front()->Start();
  return generations.front();
}

void GenerationService::CancelAll(const absl::Status& status) {
  std::vector<std::shared_ptr<Generation>> generations;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, weak] : running_) {
      if (std::shared_ptr<Generation> generation = weak.lock()) generations.push_back(generation);
    }
  }
  for (const auto& generation : generations) generation->Cancel(status);
}

}  // namespace baton::router
