#include "router/inference_request.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/convert.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "router/field_at_fault.h"

namespace baton::router {
namespace {

absl::StatusOr<ChatInput> ChatFromProto(const v1::Chat& proto) {
  ChatInput chat{.messages = {}, .thinking = proto.thinking()};
  for (int i = 0; i < proto.messages_size(); ++i) {
    const v1::ChatMessage& from = proto.messages(i);
    const std::optional<Role> role = ParseRole(from.role());
    if (!role || *role == Role::kTool) {
      return absl::InvalidArgumentError(absl::StrCat("chat.messages[", i, "].role is ",
                                                     Quoted(from.role()),
                                                     ", expected system, user or assistant"));
    }
    Message message = TextMessage(*role, from.content());
    message.reasoning_content = from.reasoning_content();
    chat.messages.push_back(std::move(message));
  }
  if (chat.messages.empty()) return absl::InvalidArgumentError("chat.messages is empty");
  return chat;
}

absl::Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.", field, " is ", value, ", expected ", low, " to ", high));
}

absl::Status CheckCount(const char* field, int count, size_t most) {
  if (static_cast<size_t>(count) <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", count, " entries, at most ", most, " are allowed"));
}

absl::StatusOr<RequestedSampling> SamplingFromProto(const v1::SamplingParams& proto) {
  RequestedSampling sampling;
  if (proto.has_temperature()) sampling.temperature = proto.temperature();
  if (proto.has_top_p()) sampling.top_p = proto.top_p();
  if (proto.has_top_k()) sampling.top_k = std::max(0, proto.top_k());
  if (proto.has_min_p()) sampling.min_p = proto.min_p();
  sampling.presence_penalty = proto.presence_penalty();
  sampling.frequency_penalty = proto.frequency_penalty();
  if (proto.has_repetition_penalty()) sampling.repetition_penalty = proto.repetition_penalty();
  sampling.logit_bias = rpc::LogitBiasFromProto(proto);
  if (proto.has_seed()) sampling.seed = proto.seed();
  if (proto.has_max_tokens()) sampling.max_tokens = proto.max_tokens();
  sampling.min_tokens = proto.min_tokens();
  sampling.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  sampling.ignore_eos = proto.ignore_eos();
  if (proto.has_top_logprobs()) {
    BATON_RETURN_IF_ERROR(CheckRange("top_logprobs", proto.top_logprobs(), 0, kMaxTopLogprobs));
    sampling.top_logprobs = static_cast<int32_t>(proto.top_logprobs());
  }
  BATON_RETURN_IF_ERROR(
      CheckRange("temperature", sampling.temperature.value_or(1), 0, kMaxTemperature));
  BATON_RETURN_IF_ERROR(CheckRange("top_p", sampling.top_p.value_or(1), kMinTopP, 1));
  BATON_RETURN_IF_ERROR(CheckRange("top_k", proto.top_k(), kMinTopK, kMaxTokens));
  BATON_RETURN_IF_ERROR(CheckRange("min_p", sampling.min_p.value_or(0), 0, 1));
  BATON_RETURN_IF_ERROR(
      CheckRange("presence_penalty", proto.presence_penalty(), -kMaxPenalty, kMaxPenalty));
  BATON_RETURN_IF_ERROR(
      CheckRange("frequency_penalty", proto.frequency_penalty(), -kMaxPenalty, kMaxPenalty));
  BATON_RETURN_IF_ERROR(CheckRange("repetition_penalty", sampling.repetition_penalty.value_or(1),
                                   kMinRepetitionPenalty, kMaxRepetitionPenalty));
  BATON_RETURN_IF_ERROR(
      CheckCount("sampling.logit_bias", proto.logit_bias_size(), kMaxLogitBiases));
  for (const LogitBias& entry : sampling.logit_bias) {
    BATON_RETURN_IF_ERROR(CheckRange(absl::StrCat("logit_bias[", entry.token, "]").c_str(),
                                     entry.bias, -kMaxLogitBias, kMaxLogitBias));
  }
  BATON_RETURN_IF_ERROR(CheckRange("max_tokens", sampling.max_tokens.value_or(1), 1, kMaxTokens));
  BATON_RETURN_IF_ERROR(
      CheckRange("min_tokens", sampling.min_tokens, 0, sampling.max_tokens.value_or(kMaxTokens)));
  BATON_RETURN_IF_ERROR(
      CheckCount("sampling.stop_token_ids", proto.stop_token_ids_size(), kMaxStopTokenIds));
  return sampling;
}

// A field that this router does not know is refused: it was meant to change the answer. `path` is
// what the message is called.
absl::Status CheckAllKnown(const google::protobuf::Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.empty() ? "the request" : path, " has a field of number ",
                     unknown.field(0).number(), " that this router does not know"));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    // Maps are of scalars.
    if (field->cpp_type() != field->CPPTYPE_MESSAGE || field->is_map()) continue;
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (!field->is_repeated()) {
      BATON_RETURN_IF_ERROR(CheckAllKnown(reflection.GetMessage(message, field), name));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      BATON_RETURN_IF_ERROR(CheckAllKnown(reflection.GetRepeatedMessage(message, field, i),
                                          absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationRequest> RequestFromProto(const v1::GenerateRequest& proto) {
  BATON_RETURN_IF_ERROR(CheckAllKnown(proto, ""));
  GenerationRequest request;
  request.endpoint = Endpoint::kGrpcGenerate;
  request.model = proto.model();
  request.stream = true;
  switch (proto.input_case()) {
    case v1::GenerateRequest::kPrompt:
      request.input = proto.prompt();
      break;
    case v1::GenerateRequest::kTokenIds:
      request.input =
          std::vector<int32_t>(proto.token_ids().ids().begin(), proto.token_ids().ids().end());
      break;
    case v1::GenerateRequest::kChat: {
      BATON_ASSIGN_OR_RETURN(request.input, ChatFromProto(proto.chat()));
      break;
    }
    default:
      return absl::InvalidArgumentError("input is missing: prompt, chat or token_ids");
  }
  BATON_ASSIGN_OR_RETURN(request.sampling, SamplingFromProto(proto.sampling()));
  BATON_RETURN_IF_ERROR(CheckCount("stop", proto.stop_size(), kMaxStopStrings));
  for (const std::string& stop : proto.stop()) {
    if (stop.empty()) return absl::InvalidArgumentError("stop holds an empty string");
    if (stop.size() > kMaxStopStringBytes) {
      return absl::InvalidArgumentError(absl::StrCat("stop holds a string of ", stop.size(),
                                                     " bytes, at most ", kMaxStopStringBytes,
                                                     " are allowed"));
    }
    request.stop.push_back(stop);
  }
  return request;
}

// SpaceUsedLong of the whole would read the map by protobuf's reflection, which reads past it in
// programs built with ThreadSanitizer: headers add members there that the library does not know.
int64_t MemoryOf(const v1::GenerateRequest& proto) {
  constexpr size_t kMapNode = 64;  // with its share of the table
  const v1::SamplingParams& sampling = proto.sampling();
  size_t bytes = sizeof(proto) + sizeof(sampling) + proto.model().capacity();
  bytes += proto.prompt().capacity();
  if (proto.has_chat()) bytes += proto.chat().SpaceUsedLong();
  if (proto.has_token_ids()) bytes += proto.token_ids().SpaceUsedLong();
  for (const std::string& stop : proto.stop()) bytes += sizeof(stop) + stop.capacity();
  bytes += sampling.stop_token_ids_size() * sizeof(int32_t);
  bytes += sampling.logit_bias_size() * kMapNode;
  const auto unknown = [](const google::protobuf::Message& message) {
    return message.GetReflection()->GetUnknownFields(message).SpaceUsedExcludingSelfLong();
  };
  bytes += unknown(proto) + unknown(sampling);
  return static_cast<int64_t>(bytes);
}

}  // namespace baton::router
