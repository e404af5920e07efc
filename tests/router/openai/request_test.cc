#include "router/openai/request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GenerationRequest Ok(const std::variant<CompletionRequest, ApiError>& result) {
  if (const ApiError* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<CompletionRequest>(result).generation;
}

ApiError Error(const std::variant<CompletionRequest, ApiError>& result) {
  if (std::holds_alternative<CompletionRequest>(result)) {
    ADD_FAILURE() << "was accepted";
    return {};
  }
  return std::get<ApiError>(result);
}

// A chat of one user message with `more` members.
std::variant<CompletionRequest, ApiError> Chat(const std::string& more) {
  return ParseChatCompletion(R"({"messages":[{"role":"user","content":"hi"}])" +
                             (more.empty() ? "" : "," + more) + "}");
}
std::variant<CompletionRequest, ApiError> Completion(const std::string& more) {
  return ParseCompletion(R"({"prompt":"hi")" + (more.empty() ? "" : "," + more) + "}");
}
std::variant<CompletionRequest, ApiError> Messages(const std::string& list) {
  return ParseChatCompletion(R"({"messages":)" + list + "}");
}

const ChatInput& ChatOf(const GenerationRequest& request) {
  return std::get<ChatInput>(request.input);
}

TEST(RequestTest, AMinimalChatLeavesEverythingToTheDefaults) {
  const GenerationRequest request = Ok(Chat(""));
  EXPECT_EQ(request.endpoint, Endpoint::kChatCompletions);
  EXPECT_EQ(request.model, "");
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.sampling.temperature, std::nullopt);
  EXPECT_EQ(request.sampling.max_tokens, std::nullopt);
  EXPECT_EQ(request.sampling.seed, std::nullopt);
  EXPECT_FALSE(ChatOf(request).thinking);
  ASSERT_THAT(ChatOf(request).messages, SizeIs(1));
  EXPECT_EQ(ContentText(ChatOf(request).messages[0].content), "hi");
}

TEST(RequestTest, ReadsEverySamplingField) {
  const GenerationRequest request = Ok(Chat(
      R"("model":"m","temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,"seed":-3,
         "max_tokens":10,"min_tokens":2,"ignore_eos":true,"stop_token_ids":[5,6],
         "presence_penalty":-2,"frequency_penalty":1.5,"repetition_penalty":1.25,
         "logit_bias":{"50":-100,"7":0.5},
         "stop":["a","b"],"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 1.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25f);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(FieldsAre(50, -100), FieldsAre(7, 0.5f)));
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(request.sampling.max_tokens, 10u);
  EXPECT_EQ(request.sampling.min_tokens, 2u);
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_THAT(request.sampling.stop_token_ids, ElementsAre(5, 6));
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(request.stream);
}

TEST(RequestTest, StreamOptionsSayWhereTheUsageGoes) {
  const auto result = Chat(
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(result));
  EXPECT_TRUE(std::get<CompletionRequest>(result).include_usage);
  EXPECT_TRUE(std::get<CompletionRequest>(result).continuous_usage_stats);
}

TEST(RequestTest, NullMeansAbsent) {
  const GenerationRequest request =
      Ok(Chat(R"("temperature":null,"stop":null,"stream_options":null,"logprobs":null,
                 "tools":null,"response_format":null,"n":null,"max_tokens":null)"));
  EXPECT_EQ(request.sampling.temperature, std::nullopt);
  EXPECT_THAT(request.stop, IsEmpty());
}

TEST(RequestTest, FieldsThatChangeNothingAreAccepted) {
  Ok(Chat(R"("user":"u","metadata":{"a":1},"store":false,"service_tier":"auto","n":1,
             "logit_bias":{},"logprobs":false,
             "response_format":{"type":"text"},"parallel_tool_calls":true)"));
  Ok(Completion(R"("best_of":1,"echo":false,"suffix":null)"));
  Ok(Completion(R"("best_of":3,"n":3)"));
}

struct BadField {
  const char* member;
  const char* param;
};

TEST(RequestTest, StopTokenIdsAreLimitedInNumber) {
  const auto with = [](size_t ids) {
    std::string list = "5";
    for (size_t i = 1; i < ids; ++i) list += ",5";
    return Chat(R"("stop_token_ids":[)" + list + "]");
  };
  EXPECT_THAT(Ok(with(kMaxStopTokenIds)).sampling.stop_token_ids, SizeIs(kMaxStopTokenIds));
  EXPECT_THAT(Error(with(kMaxStopTokenIds + 1)).message, HasSubstr("stop_token_ids has 1025 ids"));
}

TEST(RequestTest, StopStringsAreLimitedInLength) {
  const auto with = [](size_t bytes) {
    return Chat(R"("stop":")" + std::string(bytes, 'x') + "\"");
  };
  EXPECT_THAT(Ok(with(kMaxStopStringBytes)).stop, SizeIs(1));
  EXPECT_THAT(Error(with(kMaxStopStringBytes + 1)).message, HasSubstr("a string of 1025 bytes"));
}

TEST(RequestTest, BiasesAreLimitedInNumber) {
  const auto with = [](size_t tokens) {
    std::string object = R"("0":1)";
    for (size_t i = 1; i < tokens; ++i) object += ",\"" + std::to_string(i) + "\":1";
    return Chat(R"("logit_bias":{)" + object + "}");
  };
  EXPECT_THAT(Ok(with(kMaxLogitBiases)).sampling.logit_bias, SizeIs(kMaxLogitBiases));
  EXPECT_THAT(Error(with(kMaxLogitBiases + 1)).message, HasSubstr("logit_bias has 301 tokens"));
}

class BadChatField : public ::testing::TestWithParam<BadField> {};

TEST_P(BadChatField, IsA400ThatNamesIt) {
  const ApiError error = Error(Chat(GetParam().member));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, GetParam().param);
  EXPECT_THAT(error.message, HasSubstr(GetParam().param));
}

INSTANTIATE_TEST_SUITE_P(
    Ranges, BadChatField,
    ::testing::Values(
        BadField{R"("temperature":-0.1)", "temperature"},
        BadField{R"("temperature":2.1)", "temperature"},
        BadField{R"("temperature":"hot")", "temperature"}, BadField{R"("top_p":0)", "top_p"},
        BadField{R"("top_p":1.5)", "top_p"}, BadField{R"("top_k":-2)", "top_k"},
        BadField{R"("top_k":1.5)", "top_k"}, BadField{R"("min_p":2)", "min_p"},
        BadField{R"("presence_penalty":2.5)", "presence_penalty"},
        BadField{R"("frequency_penalty":-2.5)", "frequency_penalty"},
        BadField{R"("frequency_penalty":"1")", "frequency_penalty"},
        BadField{R"("repetition_penalty":0)", "repetition_penalty"},
        BadField{R"("logit_bias":[5])", "logit_bias"},
        BadField{R"("logit_bias":{"5":100.5})", "logit_bias.5"},
        BadField{R"("logit_bias":{"5":true})", "logit_bias.5"},
        BadField{R"("logit_bias":{"the":1})", "logit_bias.the"},
        BadField{R"("logit_bias":{"05":1})", "logit_bias.05"},
        BadField{R"("logit_bias":{"4294967296":1})", "logit_bias.4294967296"},
        BadField{R"("seed":1.5)", "seed"}, BadField{R"("seed":18446744073709551615)", "seed"},
        BadField{R"("max_tokens":0)", "max_tokens"}, BadField{R"("max_tokens":-1)", "max_tokens"},
        BadField{R"("max_tokens":1e10)", "max_tokens"},
        BadField{R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
        BadField{R"("max_tokens":4,"max_completion_tokens":5)", "max_completion_tokens"},
        BadField{R"("stop":"")", "stop"}, BadField{R"("stop":["a",""])", "stop"},
        BadField{R"("stop":[1])", "stop"},
        BadField{R"("stop":["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"])",
                 "stop"},
        BadField{R"("stop_token_ids":[1.5])", "stop_token_ids"},
        BadField{R"("stop_token_ids":[4294967296])", "stop_token_ids"},
        BadField{R"("stop_token_ids":5)", "stop_token_ids"}, BadField{R"("stream":1)", "stream"},
        BadField{R"("stream_options":{"include_usage":true})", "stream_options"},
        BadField{R"("stream":true,"stream_options":{"x":1})", "stream_options.x"},
        BadField{R"("stream":true,"stream_options":[])", "stream_options"},
        BadField{R"("model":7)", "model"}, BadField{R"("n":0)", "n"}, BadField{R"("n":17)", "n"},
        BadField{R"("n":1.5)", "n"}, BadField{R"("n":"2")", "n"}, BadField{R"("n":-1)", "n"},
        BadField{R"("logprobs":1)", "logprobs"}, BadField{R"("logprobs":"true")", "logprobs"},
        BadField{R"("top_logprobs":3)", "top_logprobs"},
        BadField{R"("logprobs":false,"top_logprobs":3)", "top_logprobs"},
        BadField{R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
        BadField{R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
        BadField{R"("logprobs":true,"top_logprobs":2.5)", "top_logprobs"},
        BadField{R"("logprobs":true,"top_logprobs":18446744073709551615)", "top_logprobs"},
        BadField{R"("logprobs":true,"top_logprobs":true)", "top_logprobs"},
        BadField{R"("reasoning_effort":"lots")", "reasoning_effort"},
        BadField{R"("chat_template_kwargs":{"thinking":"yes"})", "chat_template_kwargs.thinking"},
        BadField{R"("chat_template_kwargs":{"other":1})", "chat_template_kwargs.other"},
        BadField{R"("tool_choice":"required")", "tool_choice"},
        BadField{R"("tools":[{"type":"function"}])", "tools[0].function"},
        BadField{R"("tools":{})", "tools"}));

INSTANTIATE_TEST_SUITE_P(Unsupported, BadChatField,
                         ::testing::Values(BadField{R"("best_of":2)", "best_of"},
                                           BadField{R"("best_of":1,"n":2)", "best_of"},
                                           BadField{R"("response_format":{"type":"json_object"})",
                                                    "response_format"},
                                           BadField{R"("modalities":["audio"])", "modalities"},
                                           BadField{R"("functions":[])", "functions"},
                                           BadField{R"("no_such_field":1)", "no_such_field"}));

TEST(RequestTest, UnsupportedAndUnknownFieldsHaveCodes) {
  EXPECT_EQ(Error(Chat(R"("best_of":2)")).code, "unsupported_parameter");
  EXPECT_EQ(Error(Chat(R"("nn":2)")).code, "unknown_parameter");
  EXPECT_EQ(Error(Completion(R"("echo":true)")).param, "echo");
  EXPECT_EQ(Error(Completion(R"("suffix":"x")")).param, "suffix");
  EXPECT_EQ(Error(Completion(R"("messages":[])")).param, "messages");
}

TEST(RequestTest, ErrorsDoNotRepeatLongKeys) {
  const std::string key(100'000, 'k');
  const std::string shown = std::string(100, 'k') + "...";
  EXPECT_EQ(Error(Chat('"' + key + R"(":1)")).param, shown);
  EXPECT_EQ(Error(Chat(R"("logit_bias":{")" + key + R"(":1})")).message,
            "logit_bias." + shown + " is not a token id");
}

TEST(RequestTest, ErrorsHaveTheCodesOfOpenAi) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature":"hot")", "invalid_type"},
      {R"("temperature":2.1)", "decimal_above_max_value"},
      {R"("temperature":-1)", "decimal_below_min_value"},
      {R"("n":"2")", "invalid_type"},
      {R"("n":1.5)", "invalid_type"},
      {R"("n":0)", "integer_below_min_value"},
      {R"("n":1e300)", "integer_above_max_value"},
      {R"("seed":18446744073709551615)", "integer_above_max_value"},
      {R"("seed":-1e19)", "integer_below_min_value"},
      {R"("seed":9223372036854775808.0)", "integer_above_max_value"},
      {R"("stop":[""])", "invalid_value"},
      {R"("stream_options":7)", "invalid_type"},
      {R"("reasoning_effort":"lots")", "invalid_value"}};
  for (const auto& [member, code] : cases) EXPECT_EQ(Error(Chat(member)).code, code) << member;
  EXPECT_EQ(Error(ParseCompletion("{}")).code, "missing_required_parameter");
  EXPECT_EQ(Error(ParseChatCompletion("{}")).code, "missing_required_parameter");
  EXPECT_EQ(Error(Messages("[]")).code, "empty_array");
  EXPECT_EQ(Error(Messages("7")).code, "invalid_type");
  EXPECT_EQ(Error(Messages(R"([{"content":"x"}])")).code, "missing_required_parameter");
}

TEST(RequestTest, AnIntegerMayBeWrittenWithAFractionOfZero) {
  const auto request = Completion(R"("n":2.0,"best_of":2.0,"max_tokens":3e1,"seed":-7.0,
                                     "stop_token_ids":[5.0])");
  EXPECT_EQ(std::get<CompletionRequest>(request).choices, 2u);
  EXPECT_EQ(Ok(request).sampling.max_tokens, 30u);
  EXPECT_EQ(Ok(request).sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_THAT(Ok(request).sampling.stop_token_ids, ElementsAre(5));
  EXPECT_EQ(Ok(Completion(R"("n":1.0)")).sampling.max_tokens, 16u);
  EXPECT_EQ(Error(Completion(R"("best_of":1.5)")).param, "best_of");
}

TEST(RequestTest, AnIdBeyondAllVocabulariesIsNamed) {
  for (const char* id : {"2147483648", "-2147483649", "18446744073709551615", "1e+300"}) {
    const std::string list = "[7," + std::string(id) + "]";
    const ApiError error = Error(ParseCompletion("{\"prompt\":" + list + "}"));
    EXPECT_EQ(error.param, "prompt");
    EXPECT_THAT(error.message, HasSubstr(std::string("has the token id ") + id));
    EXPECT_EQ(Error(Completion("\"stop_token_ids\":" + list)).param, "stop_token_ids");
  }
  EXPECT_THAT(std::get<std::vector<int32_t>>(Ok(ParseCompletion(R"({"prompt":[3.0]})")).input),
              ElementsAre(3));
}

TEST(RequestTest, LogprobsAreANumberForCompletionsAndTwoFieldsForChats) {
  EXPECT_EQ(Ok(Chat(R"("logprobs":true)")).sampling.top_logprobs, 0);
  EXPECT_EQ(Ok(Chat(R"("logprobs":true,"top_logprobs":20)")).sampling.top_logprobs, 20);
  EXPECT_EQ(Ok(Chat(R"("logprobs":false,"top_logprobs":0)")).sampling.top_logprobs, std::nullopt);
  EXPECT_EQ(Ok(Completion(R"("logprobs":0)")).sampling.top_logprobs, 0);
  EXPECT_EQ(Ok(Completion(R"("logprobs":5)")).sampling.top_logprobs, 5);
  EXPECT_EQ(Ok(Completion(R"("logprobs":null)")).sampling.top_logprobs, std::nullopt);
  for (const char* bad : {"6", "-1", "true", "1.5", "\"5\"", "[]", "1e300"}) {
    const ApiError error = Error(Completion("\"logprobs\":" + std::string(bad)));
    EXPECT_EQ(error.param, "logprobs") << bad;
    EXPECT_EQ(error.http_status, 400);
  }
  EXPECT_EQ(Error(Completion(R"("top_logprobs":3)")).param, "top_logprobs");
  EXPECT_EQ(Error(Completion(R"("logprobs":1,"echo":true)")).param, "echo");
}

TEST(RequestTest, OneOrMoreChoicesMayBeAskedFor) {
  const auto choices = [](const std::string& members) {
    return std::get<CompletionRequest>(Chat(members)).choices;
  };
  EXPECT_EQ(choices(R"("seed":1)"), 1u);
  EXPECT_EQ(choices(R"("n":null)"), 1u);
  EXPECT_EQ(choices(R"("n":16)"), 16u);
}

TEST(RequestTest, BadJsonIsReportedWithItsPosition) {
  const ApiError error = Error(ParseChatCompletion("{\"messages\": [}"));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_THAT(error.message, HasSubstr("not valid JSON"));
  EXPECT_THAT(error.message, HasSubstr("column 15"));
  EXPECT_EQ(error.param, "");
  EXPECT_THAT(Error(ParseChatCompletion("")).message, HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(ParseChatCompletion("[1]")).message, HasSubstr("expected an object"));
  EXPECT_THAT(Error(ParseChatCompletion("{\"a\":\"\xff\"}")).message, HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(ParseChatCompletion(std::string(100000, '['))).message, HasSubstr("nested"));
}

TEST(RequestTest, BothNamesOfTheTokenLimitWork) {
  EXPECT_EQ(Ok(Chat(R"("max_completion_tokens":7)")).sampling.max_tokens, 7u);
  EXPECT_EQ(Ok(Chat(R"("max_completion_tokens":7,"max_tokens":7)")).sampling.max_tokens, 7u);
  EXPECT_EQ(Error(Completion(R"("max_completion_tokens":7)")).param, "max_completion_tokens");
}

TEST(RequestTest, MessagesKeepRolesPartsAndReasoning) {
  const ChatInput chat = ChatOf(Ok(Messages(
      R"([{"role":"system","content":"S"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null,"reasoning_content":"R","refusal":null,
           "audio":null,"function_call":null,
           "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"T"}])")));
  ASSERT_THAT(chat.messages, SizeIs(4));
  EXPECT_EQ(chat.messages[0].role, Role::kSystem);
  EXPECT_THAT(chat.messages[1].content, SizeIs(2));
  EXPECT_THAT(chat.messages[2].content, IsEmpty());
  EXPECT_EQ(chat.messages[2].reasoning_content, "R");
  ASSERT_THAT(chat.messages[2].tool_calls, SizeIs(1));
  EXPECT_EQ(chat.messages[2].tool_calls[0].name, "f");
  EXPECT_EQ(chat.messages[3].tool_call_id, "c1");
}

class BadMessages : public ::testing::TestWithParam<BadField> {};

TEST_P(BadMessages, AreA400ThatNamesThePlace) {
  const ApiError error = Error(Messages(GetParam().member));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, GetParam().param);
}

INSTANTIATE_TEST_SUITE_P(
    Places, BadMessages,
    ::testing::Values(
        BadField{"[]", "messages"}, BadField{"null", "messages"}, BadField{"{}", "messages"},
        BadField{"[1]", "messages[0]"}, BadField{R"([{"content":"x"}])", "messages[0].role"},
        BadField{R"([{"role":"robot","content":"x"}])", "messages[0].role"},
        BadField{R"([{"role":"user"}])", "messages[0].content"},
        BadField{R"([{"role":"user","content":5}])", "messages[0].content"},
        BadField{R"([{"role":"user","content":[{"type":"image_url"}]}])",
                 "messages[0].content[0].type"},
        BadField{R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
        BadField{R"([{"role":"user","content":"x"},{"role":"user","content":"x","color":1}])",
                 "messages[1].color"},
        BadField{R"([{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}])",
                 "messages[0].function_call"},
        BadField{R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])",
                 "messages[0].tool_calls[0].function"}));

TEST(RequestTest, ThinkingIsAskedForByTemplateArgumentOrEffort) {
  EXPECT_TRUE(ChatOf(Ok(Chat(R"("chat_template_kwargs":{"thinking":true})"))).thinking);
  const ChatInput low = ChatOf(Ok(Chat(R"("reasoning_effort":"low")")));
  EXPECT_TRUE(low.thinking);
  EXPECT_EQ(low.effort, ReasoningEffort::kLow);
  EXPECT_EQ(ChatOf(Ok(Chat(R"("reasoning_effort":"medium")"))).effort, ReasoningEffort::kLow);
  EXPECT_EQ(ChatOf(Ok(Chat(R"("reasoning_effort":"high")"))).effort, ReasoningEffort::kHigh);
  EXPECT_EQ(ChatOf(Ok(Chat(R"("reasoning_effort":"max")"))).effort, ReasoningEffort::kMax);
  EXPECT_FALSE(ChatOf(Ok(Chat(R"("reasoning_effort":"none")"))).thinking);
  EXPECT_FALSE(ChatOf(Ok(Chat(R"("reasoning_effort":"high",
                                 "chat_template_kwargs":{"thinking":false})")))
                   .thinking);
}

TEST(RequestTest, ToolsGoToTheLeadingSystemMessage) {
  const char* tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  const ChatInput chat = ChatOf(Ok(Chat(tools)));
  ASSERT_THAT(chat.messages, SizeIs(2));
  EXPECT_EQ(chat.messages[0].role, Role::kSystem);
  ASSERT_THAT(chat.messages[0].tools, SizeIs(1));
  EXPECT_EQ(chat.messages[0].tools[0].at("name"), "f");
  const ChatInput none = ChatOf(Ok(Chat(std::string(tools) + R"(,"tool_choice":"none")")));
  EXPECT_THAT(none.messages, SizeIs(1));
}

TEST(RequestTest, PromptsAreTextOrTokenIds) {
  EXPECT_EQ(std::get<std::string>(Ok(ParseCompletion(R"({"prompt":"x"})")).input), "x");
  EXPECT_EQ(std::get<std::string>(Ok(ParseCompletion(R"({"prompt":["x"]})")).input), "x");
  EXPECT_THAT(std::get<std::vector<int32_t>>(Ok(ParseCompletion(R"({"prompt":[1,2]})")).input),
              ElementsAre(1, 2));
  EXPECT_THAT(std::get<std::vector<int32_t>>(Ok(ParseCompletion(R"({"prompt":[[1,2]]})")).input),
              ElementsAre(1, 2));
  for (const char* bad :
       {"{}", R"({"prompt":5})", R"({"prompt":["a","b"]})", R"({"prompt":[1,"a"]})",
        R"({"prompt":[[1],[2]]})", R"({"prompt":[1.5]})", R"({"prompt":{}})"}) {
    EXPECT_EQ(Error(ParseCompletion(bad)).param, "prompt") << bad;
  }
}

TEST(RequestTest, CompletionsAreSixteenTokensLongByDefault) {
  EXPECT_EQ(Ok(Completion("")).sampling.max_tokens, 16u);
  EXPECT_EQ(Ok(Completion(R"("max_tokens":5)")).sampling.max_tokens, 5u);
}

}  // namespace
}  // namespace baton::router
