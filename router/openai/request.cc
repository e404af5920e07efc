#include "router/openai/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/chat/json_text.h"
#include "router/openai/chat_messages.h"
#include "router/openai/field_reader.h"

namespace baton::router {
namespace {

// Of POST /v1/completions when the client names none, as in OpenAI's API.
constexpr uint32_t kDefaultCompletionTokens = 16;
// Of POST /v1/completions, as in OpenAI's API.
constexpr int32_t kMaxCompletionLogprobs = 5;

void ReadStopStrings(FieldReader& fields, std::vector<std::string>* stop) {
  const Json* field = fields.Find("stop");
  if (field == nullptr) return;
  const Json list = field->is_array() ? *field : Json::array({*field});
  if (list.size() > kMaxStopStrings) {
    fields.Fail("stop", absl::StrCat("has ", list.size(), " strings, at most ", kMaxStopStrings,
                                     " are allowed"));
  }
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      fields.Fail("stop", "must be a string or a list of strings, none of them empty");
      return;
    }
    stop->push_back(text.get<std::string>());
    if (stop->back().size() > kMaxStopStringBytes) {
      fields.Fail("stop",
                  absl::StrCat("has a string of ", stop->back().size(), " bytes, at most ",
                               kMaxStopStringBytes, " are allowed"),
                  "string_above_max_length");
    }
  }
}

// `list` is the field `key` or what it holds, `expected` what that should be.
std::vector<int32_t> ReadTokenIds(FieldReader& fields, const std::string& key, const Json& list,
                                  const std::string& expected) {
  std::vector<int32_t> ids;
  if (!list.is_array() || !std::ranges::all_of(list, IsInteger)) {
    fields.Fail(key, absl::StrCat("must be ", expected), "invalid_type");
    return ids;
  }
  for (const Json& id : list) {
    using Limits = std::numeric_limits<int32_t>;
    if (const auto number = IntegerWithin(id, Limits::min(), Limits::max())) {
      ids.push_back(static_cast<int32_t>(*number));
    } else {
      fields.Fail(key, absl::StrCat("has the token id ", id.dump(), ", which no vocabulary has"));
    }
  }
  return ids;
}

// An object of token ids, written as its keys are: as strings.
void ReadLogitBias(FieldReader& fields, std::vector<LogitBias>* biases) {
  const Json* field = fields.Find("logit_bias");
  if (field == nullptr) return;
  if (!field->is_object()) {
    fields.FailType("logit_bias", *field, "an object");
    return;
  }
  if (field->size() > kMaxLogitBiases) {
    fields.Fail("logit_bias", absl::StrCat("has ", field->size(), " tokens, at most ",
                                           kMaxLogitBiases, " are allowed"));
    return;
  }
  FieldReader reader(*field, "logit_bias");
  for (const auto& [key, value] : field->items()) {
    int32_t token = 0;
    std::optional<float> bias;
    if (!absl::SimpleAtoi(key, &token) || absl::StrCat(token) != key) {  // "07" would be 7 again
      reader.Fail(key, "is not a token id");
    }
    reader.Float(key, -kMaxLogitBias, kMaxLogitBias, &bias);
    biases->push_back({.token = token, .bias = bias.value_or(0)});
  }
  fields.Adopt(reader.error());
}

void ReadSampling(FieldReader& fields, RequestedSampling* sampling) {
  fields.Float("temperature", 0, kMaxTemperature, &sampling->temperature);
  fields.Float("top_p", kMinTopP, 1, &sampling->top_p);
  fields.Integer("top_k", kMinTopK, kMaxTokens, &sampling->top_k);
  if (sampling->top_k == -1) sampling->top_k = 0;
  fields.Float("min_p", 0, 1, &sampling->min_p);
  fields.Float("presence_penalty", -kMaxPenalty, kMaxPenalty, &sampling->presence_penalty);
  fields.Float("frequency_penalty", -kMaxPenalty, kMaxPenalty, &sampling->frequency_penalty);
  fields.Float("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty,
               &sampling->repetition_penalty);
  ReadLogitBias(fields, &sampling->logit_bias);
  fields.Integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                 &sampling->seed);
  std::optional<uint32_t> min_tokens;
  fields.Integer("min_tokens", 0, kMaxTokens, &min_tokens);
  sampling->min_tokens = min_tokens.value_or(0);
  fields.Boolean("ignore_eos", &sampling->ignore_eos);
  if (const Json* stop_ids = fields.Find("stop_token_ids")) {
    sampling->stop_token_ids =
        ReadTokenIds(fields, "stop_token_ids", *stop_ids, "a list of token ids");
  }
  if (sampling->stop_token_ids.size() > kMaxStopTokenIds) {
    fields.Fail("stop_token_ids", absl::StrCat("has ", sampling->stop_token_ids.size(),
                                               " ids, at most ", kMaxStopTokenIds, " are allowed"));
  }
}

void ReadStream(FieldReader& fields, CompletionRequest* request) {
  fields.Boolean("stream", &request->generation.stream);
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    fields.FailType("stream_options", *options, "an object");
    return;
  }
  if (!request->generation.stream) {
    fields.Fail("stream_options", "is only allowed when stream is true");
  }
  FieldReader reader(*options, "stream_options");
  reader.Boolean("include_usage", &request->include_usage);
  reader.Unsupported("include_obfuscation", false);
  reader.Boolean("continuous_usage_stats", &request->continuous_usage_stats);
  reader.RejectUnknown();
  fields.Adopt(reader.error());
}

// What both endpoints know.
void ReadCommon(FieldReader& fields, CompletionRequest* request) {
  GenerationRequest& generation = request->generation;
  fields.String("model", &generation.model);
  ReadStream(fields, request);
  ReadStopStrings(fields, &generation.stop);
  ReadSampling(fields, &generation.sampling);
  fields.Integer("max_tokens", 1, kMaxTokens, &generation.sampling.max_tokens);
  fields.Ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
  std::optional<size_t> choices;
  fields.Integer("n", 1, kMaxChoices, &choices);
  request->choices = choices.value_or(1);
  fields.Unsupported("best_of", request->choices);  // candidates that nobody would see
  fields.Unsupported("response_format", {{"type", "text"}});
}

void ReadChatLogprobs(FieldReader& fields, RequestedSampling* sampling) {
  bool wanted = false;
  std::optional<int32_t> top;
  fields.Boolean("logprobs", &wanted);
  fields.Integer("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (wanted) {
    sampling->top_logprobs = top.value_or(0);
  } else if (top.value_or(0) > 0) {
    fields.Fail("top_logprobs", "is only allowed when logprobs is true");
  }
}

void CheckTokenCounts(FieldReader& fields, const RequestedSampling& sampling) {
  if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens) {
    fields.Fail("min_tokens", absl::StrCat("is ", sampling.min_tokens, ", more than max_tokens (",
                                           *sampling.max_tokens, ")"));
  }
}

void ReadPrompt(FieldReader& fields, GenerationRequest* generation) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) {
    fields.FailMissing("prompt");
    return;
  }
  const bool nested = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (nested && prompt->size() > 1) {
    fields.Fail("prompt",
                absl::StrCat("has ", prompt->size(), " prompts, send one request for each"));
    return;
  }
  const Json& only = nested ? prompt->front() : *prompt;
  if (only.is_string()) {
    generation->input = only.get<std::string>();
    return;
  }
  generation->input = ReadTokenIds(fields, "prompt", only,
                                   "a string, or a list that holds one string or token ids");
}

void ReadChatTokenLimits(FieldReader& fields, RequestedSampling* sampling) {
  std::optional<uint32_t> completion_tokens;
  fields.Integer("max_completion_tokens", 1, kMaxTokens, &completion_tokens);
  if (!completion_tokens) return;
  if (sampling->max_tokens && *sampling->max_tokens != *completion_tokens) {
    fields.Fail("max_completion_tokens", "contradicts max_tokens");
  }
  sampling->max_tokens = completion_tokens;
}

// A limit that the client did not set is not for it to lower: what it can shorten is the prompt.
FieldNames NamesOf(Endpoint endpoint, FieldReader& fields) {
  FieldNames names{.prompt = endpoint == Endpoint::kChatCompletions ? "messages" : "prompt"};
  names.max_tokens = names.prompt;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (fields.Find(name) != nullptr) names.max_tokens = name;
  }
  return names;
}

using Result = std::variant<CompletionRequest, ApiError>;

template <typename ReadFields>
Result Parse(std::string_view body, ReadFields read) {
  absl::StatusOr<Json> json = ParseJson(body);
  if (!json.ok()) {
    return ApiError{.http_status = 400,
                    .message = absl::StrCat("the request body: ", json.status().message())};
  }
  if (!json->is_object()) {
    return ApiError{
        .http_status = 400,
        .message = absl::StrCat("the request body is ", TypeOf(*json), ", expected an object")};
  }
  FieldReader fields(*json, "");
  CompletionRequest request;
  read(fields, &request);
  CheckTokenCounts(fields, request.generation.sampling);
  fields.RejectUnknown();
  if (fields.error()) return *fields.error();
  request.field_names = NamesOf(request.generation.endpoint, fields);
  return request;
}

}  // namespace

Result ParseChatCompletion(std::string_view body) {
  return Parse(body, [](FieldReader& fields, CompletionRequest* request) {
    request->generation.endpoint = Endpoint::kChatCompletions;
    ReadCommon(fields, request);
    ReadChatTokenLimits(fields, &request->generation.sampling);
    request->generation.input = ReadChat(fields);
    ReadChatLogprobs(fields, &request->generation.sampling);
    fields.Unsupported("modalities", Json::array({"text"}));
    for (const char* field :
         {"audio", "prediction", "functions", "function_call", "verbosity", "web_search_options"}) {
      fields.Unsupported(field);
    }
  });
}

Result ParseCompletion(std::string_view body) {
  return Parse(body, [](FieldReader& fields, CompletionRequest* request) {
    request->generation.endpoint = Endpoint::kCompletions;
    request->generation.sampling.max_tokens = kDefaultCompletionTokens;
    ReadCommon(fields, request);
    ReadPrompt(fields, &request->generation);
    fields.Unsupported("echo", false);
    fields.Unsupported("suffix");
    fields.Integer("logprobs", 0, kMaxCompletionLogprobs,
                   &request->generation.sampling.top_logprobs);
  });
}

}  // namespace baton::router
