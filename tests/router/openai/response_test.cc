#include "router/openai/response.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ResponseHeader Header(Endpoint endpoint, bool include_usage = false) {
  return {.endpoint = endpoint,
          .id = "chatcmpl-1",
          .created = 123,
          .model = "m",
          .include_usage = include_usage};
}

GenerationEnd End(FinishReason reason = FinishReason::kStop) {
  GenerationEnd end;
  end.finish_reason = reason;
  end.usage = {.prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 3};
  end.handoff.prefill_address = "p:1";
  end.handoff.decode_address = "d:1";
  end.handoff.bytes = 1000;
  end.time_to_first_token = std::chrono::microseconds(1500);
  end.attempts = 2;
  return end;
}

// Of an answer with one choice.
std::string Body(const ResponseHeader& header, const GenerationDelta& all,
                 const GenerationEnd& end) {
  const FinishedChoice choice{.all = all, .end = end};
  return CompleteBody(header, {&choice, 1});
}
std::string Closing(const ResponseHeader& header, const GenerationEnd& end) {
  const FinishedChoice choice{.all = {}, .end = end};
  return ClosingEvents(header, {&choice, 1});
}

// The JSON of each event, and "[DONE]" as text; checks the framing.
std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  size_t begin = 0;
  while (begin < stream.size()) {
    const size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << stream;
    const std::string event = stream.substr(begin, end - begin);
    EXPECT_THAT(event, StartsWith("data: "));
    EXPECT_EQ(event.find('\n'), std::string::npos);
    const std::string data = event.substr(6);
    events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    begin = end + 2;
  }
  return events;
}

TEST(ResponseTest, AChatAnswerHasTheShapeOfOpenAis) {
  GenerationDelta all;
  all.text = "hello";
  all.reasoning = "hm";
  const Json body = Json::parse(Body(Header(Endpoint::kChatCompletions), all, End()));
  EXPECT_EQ(body.at("id"), "chatcmpl-1");
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("created"), 123);
  EXPECT_EQ(body.at("model"), "m");
  EXPECT_THAT(body.at("system_fingerprint").get<std::string>(), StartsWith("baton-"));
  EXPECT_EQ(body.at("choices"),
            Json::parse(R"([{"index":0,"message":{"role":"assistant","content":"hello",
                             "reasoning_content":"hm"},"logprobs":null,"finish_reason":"stop"}])"));
  EXPECT_EQ(body.at("usage"), Json::parse(R"({"prompt_tokens":5,"completion_tokens":2,
                "total_tokens":7,"prompt_tokens_details":{"cached_tokens":3}})"));
  const Json& baton = body.at("baton");
  EXPECT_EQ(baton.at("prefill_worker"), "p:1");
  EXPECT_EQ(baton.at("decode_worker"), "d:1");
  EXPECT_EQ(baton.at("handoff_bytes"), 1000);
  EXPECT_EQ(baton.at("ttft_ms"), 1.5);
  EXPECT_EQ(baton.at("attempts"), 2);
}

TEST(ResponseTest, ALocalPrefillHasNoPrefillWorker) {
  GenerationEnd end = End();
  end.handoff.prefill_address = "";
  const Json body = Json::parse(Body(Header(Endpoint::kChatCompletions), {}, end));
  EXPECT_TRUE(body.at("baton").at("prefill_worker").is_null());
}

TEST(ResponseTest, ACompletionAnswerHasTextInsteadOfAMessage) {
  GenerationDelta all;
  all.text = "hello";
  const Json body =
      Json::parse(Body(Header(Endpoint::kCompletions), all, End(FinishReason::kLength)));
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(
      body.at("choices"),
      Json::parse(R"([{"index":0,"text":"hello","logprobs":null,"finish_reason":"length"}])"));
}

TEST(ResponseTest, PiecesOfToolCallsArePutTogether) {
  GenerationDelta all;
  all.tool_calls = {{.index = 0, .id = "a", .name = "f", .arguments = "{"},
                    {.index = 0, .arguments = "}"},
                    {.index = 1, .id = "b", .name = "g", .arguments = "{}"}};
  const Json body =
      Json::parse(Body(Header(Endpoint::kChatCompletions), all, End(FinishReason::kToolCalls)));
  const Json& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  EXPECT_EQ(choice.at("message").at("tool_calls"),
            Json::parse(R"([{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
                            {"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}])"));
}

TEST(ResponseTest, AChatStreamIsRoleDeltasFinishReasonAndDone) {
  const ResponseHeader header = Header(Endpoint::kChatCompletions);
  GenerationDelta delta;
  delta.text = "line\nbreak";
  const std::vector<Json> events =
      Events(OpeningEvent(header) + DeltaEvents(header, delta) + Closing(header, End()));
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(events[i].at("id"), "chatcmpl-1");
    EXPECT_FALSE(events[i].contains("usage"));
  }
  EXPECT_EQ(events[0].at("choices").at(0).at("delta"),
            Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events[1].at("choices").at(0).at("delta"), Json({{"content", "line\nbreak"}}));
  EXPECT_TRUE(events[1].at("choices").at(0).at("finish_reason").is_null());
  EXPECT_EQ(events[2].at("choices").at(0).at("delta"), Json::object());
  EXPECT_EQ(events[2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(events[2].at("baton").at("decode_worker"), "d:1");
  EXPECT_EQ(events[3], "[DONE]");
}

TEST(ResponseTest, UsageComesInALastChunkWithoutChoices) {
  const ResponseHeader header = Header(Endpoint::kChatCompletions, /*include_usage=*/true);
  GenerationDelta delta;
  delta.text = "x";
  const std::vector<Json> events = Events(DeltaEvents(header, delta) + Closing(header, End()));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(events[0].at("usage").is_null());
  EXPECT_TRUE(events[1].at("usage").is_null());
  EXPECT_FALSE(events[1].contains("baton"));
  EXPECT_EQ(events[2].at("choices"), Json::array());
  EXPECT_EQ(events[2].at("usage").at("total_tokens"), 7);
  EXPECT_TRUE(events[2].contains("baton"));
  EXPECT_EQ(events[3], "[DONE]");
}

TEST(ResponseTest, ContinuousUsageIsInEveryChunkThatHasSome) {
  ResponseHeader header = Header(Endpoint::kCompletions, /*include_usage=*/true);
  header.continuous_usage = true;
  GenerationDelta delta;
  delta.text = "x";
  delta.usage = {.prompt_tokens = 5, .completion_tokens = 1};
  const std::vector<Json> events = Events(DeltaEvents(header, delta) + Closing(header, End()));
  EXPECT_EQ(events[0].at("usage").at("completion_tokens"), 1);
  EXPECT_EQ(events[1].at("usage").at("completion_tokens"), 2);
}

TEST(ResponseTest, ReasoningAndToolCallsHaveDeltasOfTheirOwn) {
  const ResponseHeader header = Header(Endpoint::kChatCompletions);
  GenerationDelta delta;
  delta.reasoning = "hm";
  delta.text = "so";
  delta.tool_calls = {{.index = 0, .id = "a", .name = "f"}, {.index = 0, .arguments = "{}"}};
  const std::vector<Json> events = Events(DeltaEvents(header, delta));
  ASSERT_EQ(events.size(), 4u);
  const auto content = [&](size_t i) { return events[i].at("choices").at(0).at("delta"); };
  EXPECT_EQ(content(0), Json({{"reasoning_content", "hm"}}));
  EXPECT_EQ(content(1), Json({{"content", "so"}}));
  EXPECT_EQ(content(2), Json::parse(R"({"tool_calls":[{"index":0,"id":"a","type":"function",
                                        "function":{"name":"f","arguments":""}}]})"));
  EXPECT_EQ(content(3),
            Json::parse(R"({"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]})"));
}

TEST(ResponseTest, ACompletionStreamHasNoOpening) {
  const ResponseHeader header = Header(Endpoint::kCompletions);
  EXPECT_EQ(OpeningEvent(header), "");
  EXPECT_EQ(DeltaEvents(header, {}), "");
  const std::vector<Json> events = Events(Closing(header, End(FinishReason::kLength)));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "");
  EXPECT_EQ(events[0].at("choices").at(0).at("finish_reason"), "length");
}

TEST(ResponseTest, AFailedStreamEndsWithTheErrorAndNoDone) {
  const std::string event = ErrorEvent(ErrorOf(absl::UnavailableError("gone")));
  const std::vector<Json> events = Events(event);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("error").at("message"), "gone");
  EXPECT_THAT(event, ::testing::Not(HasSubstr("[DONE]")));
}

TEST(ResponseTest, ChoicesAreNumberedAndTheirPromptCountsOnce) {
  std::vector<FinishedChoice> choices(3);
  for (size_t i = 0; i < 3; ++i) {
    choices[i].all.text = std::string(1, static_cast<char>('a' + i));
    choices[i].end = End(i == 1 ? FinishReason::kLength : FinishReason::kStop);
  }
  choices[2].end.usage.cached_tokens = 4;
  const Json usage = Json::parse(R"({"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,
                                     "prompt_tokens_details":{"cached_tokens":3}})");
  const Json body = Json::parse(CompleteBody(Header(Endpoint::kCompletions), choices));
  EXPECT_EQ(body.at("usage"), usage);
  for (size_t i = 0; i < 3; ++i) {
    const Json& choice = body.at("choices").at(i);
    EXPECT_EQ(choice.at("index"), i);
    EXPECT_EQ(choice.at("text"), choices[i].all.text);
    EXPECT_EQ(choice.at("finish_reason"), i == 1 ? "length" : "stop");
  }

  ResponseHeader header = Header(Endpoint::kChatCompletions, /*include_usage=*/true);
  header.choice = 1;
  const std::vector<Json> events =
      Events(OpeningEvent(header) + DeltaEvents(header, choices[1].all) +
             FinishEvent(header, choices[0].end) + ClosingEvents(header, choices));
  ASSERT_EQ(events.size(), 6u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].at("choices").at(0).at("index"), 1);
  EXPECT_EQ(events[2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_FALSE(events[2].contains("baton"));
  EXPECT_EQ(events[3].at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(events[4].at("usage"), usage);
  EXPECT_EQ(events[5], "[DONE]");
}

}  // namespace
}  // namespace baton::router
