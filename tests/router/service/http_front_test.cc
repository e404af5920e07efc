#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/router/service/router_fixture.h"

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using HttpFrontTest = RouterFixture;

TEST_F(HttpFrontTest, AnswersAChat) {
  AnswerAlways("The grass is green.");
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("What is green?"));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "The grass is green.");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("model"), "needle-17m");
  EXPECT_EQ(body.at("id"), "chatcmpl-" + response.headers.at("x-request-id"));
  EXPECT_THAT(body.at("baton").at("decode_worker").get<std::string>(),
              AnyOf(decode_[0]->address(), decode_[1]->address()));
  EXPECT_THAT(body.at("baton").at("prefill_worker").get<std::string>(),
              AnyOf(prefill_[0]->address(), prefill_[1]->address()));
  EXPECT_EQ(body.at("baton").at("handoff_bytes"), 1000);
  EXPECT_EQ(body.at("baton").at("attempts"), 1);
}

TEST_F(HttpFrontTest, StreamsAChatByteForByte) {
  AnswerAlways("green.");
  StartReady();
  Json request = Chat("What?", /*stream=*/true);
  request["stream_options"] = {{"include_usage", true}};
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, request.dump());
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
  EXPECT_TRUE(response.complete);

  std::string content;
  const std::vector<Json> chunks = Chunks(response.body);
  for (const Json& chunk : chunks) {
    for (const Json& choice : chunk.at("choices")) {
      content += choice.at("delta").value("content", "");
    }
  }
  EXPECT_EQ(content, "green.");
  ASSERT_GE(chunks.size(), 4u);
  EXPECT_EQ(chunks.front().at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(chunks[chunks.size() - 2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), Tokens().Encode("green.").size());
  EXPECT_EQ(chunks.back().at("baton").at("attempts"), 1);
  client.SendRequest("GET", "/version");
  EXPECT_EQ(client.Read().status, 200);  // the connection is kept
}

TEST_F(HttpFrontTest, AnAnswerThatEndsAtAStopStringSaysHowItWasServed) {
  AnswerAlways("The grass is green.");
  StartReady();
  for (const bool stream : {false, true}) {
    Json request = Chat("What?", stream);
    request["stop"] = " is";
    const HttpClient::Response response = Post(kChatPath, request);
    const Json last = stream ? Chunks(response.body).back() : Json::parse(response.body);
    EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), "stop");
    EXPECT_EQ(last.at("baton").at("handoff_bytes"), 1000);
    EXPECT_FALSE(last.at("baton").at("prefill_worker").is_null());
  }
}

TEST_F(HttpFrontTest, AToolCallThatAStopStringCutsIsNotPassedOffAsWhole) {
  AnswerAlways(
      "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"look_up\">\n"
      "<｜DSML｜parameter name=\"word\" string=\"true\">the grass</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  StartReady();
  Json request = Chat("What?");
  request["tools"] = {{{"type", "function"}, {"function", {{"name", "look_up"}}}}};
  const auto choice = [&] { return Json::parse(Post(kChatPath, request).body).at("choices")[0]; };
  const Json whole = choice();
  EXPECT_EQ(whole.at("finish_reason"), "tool_calls");
  EXPECT_EQ(whole.at("message").at("tool_calls")[0].at("function").at("arguments"),
            R"({"word": "the grass"})");
  request["stop"] = " grass";
  const Json cut = choice();
  EXPECT_EQ(cut.at("finish_reason"), "stop");
  EXPECT_EQ(cut.at("message").at("tool_calls")[0].at("function").at("arguments"),
            R"({"word": "the)");
}

TEST_F(HttpFrontTest, CompletesTextAndTokenIds) {
  StartReady();
  const HttpClient::Response text =
      Post(kCompletionPath, {{"prompt", "The grass is green."}, {"max_tokens", 100}});
  ASSERT_EQ(text.status, 200) << text.body;
  const Json body = Json::parse(text.body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "The grass is green.");  // the fake echoes
  EXPECT_THAT(body.at("id").get<std::string>(), StartsWith("cmpl-"));
  const HttpClient::Response ids =
      Post(kCompletionPath, {{"prompt", Tokens().Encode("The sky is blue.")}, {"max_tokens", 3}});
  ASSERT_EQ(ids.status, 200) << ids.body;
  EXPECT_EQ(Json::parse(ids.body).at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(Json::parse(ids.body).at("usage").at("completion_tokens"), 3);
}

TEST_F(HttpFrontTest, AnswersManyClientsAtOnceAlsoWhenSomeLeave) {
  AnswerAlways("The grass is green.");
  StartReady();
  constexpr int kClients = 8;
  constexpr int kRequests = 20;
  std::atomic<int> right = 0;
  std::vector<std::jthread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < kRequests; ++i) {
        HttpClient client(router_->ports().http);
        client.SendRequest("POST", kChatPath, Chat("x", /*stream=*/c % 2 == 0).dump());
        if (i % 4 == 0) continue;
        const std::string body = client.Read().body;
        if (body.find("\"finish_reason\":\"stop\"") != std::string::npos) ++right;
      }
    });
  }
  for (std::jthread& client : clients) client.join();
  EXPECT_EQ(right, kClients * kRequests * 3 / 4);
  EXPECT_TRUE(router_->Drain(seconds(10)));
}

TEST_F(HttpFrontTest, WithKeysOnlyWhoHasOneMayAsk) {
  const std::string path = ::testing::TempDir() + "baton_http_front_keys";
  std::ofstream(path) << "sk-0123456789abcdef\n";
  RouterConfig config = Config();
  config.api_keys_file = path;
  StartReady(config);
  AnswerAlways("green.");
  const std::string body = Chat("x").dump();
  const auto ask = [&](const std::string& headers) {
    HttpClient client(router_->ports().http);
    client.Send(absl::StrCat("POST ", kChatPath, " HTTP/1.1\r\nHost: x\r\n", headers,
                             "Content-Type: application/json\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body));
    return client.Read();
  };
  for (const char* headers : {"", "Authorization: Bearer sk-0123456789abcdee\r\n"}) {
    const HttpClient::Response refused = ask(headers);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(ErrorOf(refused).at("code"), "invalid_api_key");
  }
  HttpClient silent(router_->ports().http);
  silent.Send(
      absl::StrCat("POST ", kChatPath, " HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"));
  EXPECT_EQ(silent.Read().status, 401) << "before the body";
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(ask("Authorization: Bearer sk-0123456789abcdef\r\n").status, 200);
  std::filesystem::remove(path);
}

TEST_F(HttpFrontTest, EveryAnswerHasARequestId) {
  AnswerAlways(".");
  StartReady();
  EXPECT_NE(Post(kChatPath, Chat("x")).headers["x-request-id"], "");
  const HttpClient::Response invalid = Post(kChatPath, Json::object());
  EXPECT_EQ(invalid.status, 400);
  EXPECT_EQ(invalid.headers.count("x-request-id"), 1u);
  HttpClient client(router_->ports().http);
  client.Send(
      absl::StrCat("POST ", kChatPath, " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"));
  const HttpClient::Response other_type = client.Read();
  EXPECT_EQ(other_type.status, 415);
  EXPECT_EQ(other_type.headers.count("x-request-id"), 1u);
  for (const auto& [method, path, status] :
       {std::tuple("GET", "/health", 200), std::tuple("GET", "/nowhere", 404),
        std::tuple("DELETE", kChatPath, 405), std::tuple("GET", "/v1/models/gpt-5", 404)}) {
    const HttpClient::Response other = Fetch(router_->ports().http, method, path);
    EXPECT_EQ(other.status, status) << path;
    EXPECT_NE(other.headers.at("x-request-id"), "") << path;
  }
}

TEST_F(HttpFrontTest, AClientsRequestIdStandsInTheAnswerAndInTheLog) {
  FailFirst("", {.status = absl::UnavailableError("no")}, ".");
  StartReady();
  const auto ask = [&](const std::string& id) {
    HttpClient client(router_->ports().http);
    const std::string body = Chat("x").dump();
    client.Send(absl::StrCat("POST ", kChatPath, " HTTP/1.1\r\nHost: x\r\nX-Request-ID: ", id,
                             "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body));
    return client.Read();
  };
  ::testing::internal::CaptureStdout();
  const HttpClient::Response named = ask("its-own.1");
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(named.status, 200);
  EXPECT_EQ(named.headers.at("x-request-id"), "its-own.1");
  const std::string id = Json::parse(named.body).at("id").get<std::string>().substr(9);
  EXPECT_THAT(log, HasSubstr("request " + id + " (X-Request-Id its-own.1) attempt 1 failed"));
  EXPECT_EQ(ask("two words").headers.at("x-request-id").size(), id.size()) << "the router's own";
  HttpClient other(router_->ports().http);
  other.Send("GET /nowhere HTTP/1.1\r\nHost: x\r\nX-Request-ID: its-own.2\r\n\r\n");
  EXPECT_EQ(other.Read().headers.at("x-request-id"), "its-own.2");
}

struct BadRequest {
  const char* method;
  const char* path;
  const char* body;
  int status;
  const char* message;
};

TEST_F(HttpFrontTest, BadRequestsAreAnsweredInOpenAisShape) {
  StartReady();
  const std::string long_prompt =
      Json({{"prompt", std::vector<int>(5000, 5)}, {"max_tokens", 1}}).dump();
  const BadRequest cases[] = {
      {"GET", "/nothing", "", 404, "/nothing"},
      {"GET", kChatPath, "", 405, "only POST"},
      {"DELETE", "/v1/models", "", 405, "only GET"},
      {"POST", "/health", "{}", 405, "only GET"},
      {"POST", kChatPath, "{", 400, "not valid JSON"},
      {"POST", kChatPath, "{}", 400, "messages"},
      {"POST", kChatPath, R"({"messages":[{"role":"user","content":"x"}],"n":17})", 400, "n is 17"},
      {"POST", kCompletionPath, R"({"prompt":"x","model":"gpt-5"})", 404, "gpt-5"},
      {"POST", kCompletionPath, R"({"prompt":[5000]})", 400, "prompt[0] is 5000"},
      {"POST", kCompletionPath, R"({"prompt":""})", 400, "prompt is empty"},
      {"POST", kCompletionPath, long_prompt.c_str(), 400, "longest prompt is 4095"},
      {"GET", "/v1/models/gpt-5", "", 404, "gpt-5"},
  };
  for (const BadRequest& c : cases) {
    const HttpClient::Response response = Fetch(router_->ports().http, c.method, c.path, c.body);
    EXPECT_EQ(response.status, c.status) << c.method << " " << c.path << " " << c.body;
    const Json error = ErrorOf(response);
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(c.message));
    EXPECT_TRUE(error.contains("type") && error.contains("param") && error.contains("code"));
    EXPECT_EQ(response.headers.contains("allow"), c.status == 405);
  }
  EXPECT_EQ(DecodeCalls(), 0u);
}

TEST_F(HttpFrontTest, AnErrorNamesTheMemberThatIsAtFault) {
  StartReady();
  const std::string long_text(20'000, '7');  // at most three to a token
  const auto complete = [](const std::string& field, const Json& value) {
    Json body = {{"prompt", "x"}};
    body[field] = value;
    return body;
  };
  Json long_answer = Chat("x");
  long_answer["max_tokens"] = 5000;
  Json new_name = Chat("x");
  new_name["max_completion_tokens"] = 5000;
  Json biased = Chat("x");
  biased["logit_bias"] = {{"1024", 1}};
  const std::tuple<const char*, Json, const char*, const char*> cases[] = {
      {kChatPath, Chat(long_text), "messages", "context_length_exceeded"},
      {kChatPath, long_answer, "max_tokens", "context_length_exceeded"},
      {kChatPath, new_name, "max_completion_tokens", "context_length_exceeded"},
      {kChatPath, biased, "logit_bias", "invalid_value"},
      {kCompletionPath, complete("prompt", long_text), "prompt", "context_length_exceeded"},
      {kCompletionPath, complete("max_tokens", 5000), "max_tokens", "context_length_exceeded"},
      {kCompletionPath, complete("prompt", ""), "prompt", "invalid_value"},
      {kCompletionPath, complete("prompt", {7, 1024}), "prompt", "invalid_value"},
      {kCompletionPath, complete("prompt", std::vector<int>(4090, 7)), "prompt",
       "context_length_exceeded"},  // with the 16 tokens that nobody asked for
      {kCompletionPath, complete("stop_token_ids", {1024}), "stop_token_ids", "invalid_value"},
      {kCompletionPath, complete("model", "gpt-5"), "model", "model_not_found"},
  };
  for (const auto& [path, body, param, code] : cases) {
    const Json error = ErrorOf(Post(path, body));
    EXPECT_EQ(error.at("param"), param) << error;
    EXPECT_EQ(error.at("code"), code) << error;
  }
}

TEST_F(HttpFrontTest, OtherContentTypesAre415) {
  StartReady();
  HttpClient client(router_->ports().http);
  client.Send(absl::StrCat("POST ", kChatPath,
                           " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                           "Content-Length: 2\r\n\r\n{}"));
  EXPECT_EQ(client.Read().status, 415);
}

// So that what one curl after another writes can be read.
TEST_F(HttpFrontTest, BodiesAreLines) {
  AnswerAlways("green.");
  StartReady();
  for (const char* path : {"/health", "/version", "/v1/models", "/nothing"}) {
    EXPECT_THAT(Get(path).body, EndsWith("}\n")) << path;
  }
  EXPECT_THAT(Post(kChatPath, Chat("x")).body, EndsWith("}\n"));
  EXPECT_THAT(Post(kChatPath, Json::object()).body, EndsWith("}\n"));
}

TEST_F(HttpFrontTest, DescribesItself) {
  StartReady();
  const Json list = Json::parse(Get("/v1/models").body);
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").at(0).at("id"), "needle-17m");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 4096);
  EXPECT_EQ(Json::parse(Get("/v1/models/needle-17m").body).at("object"), "model");
  EXPECT_EQ(Json::parse(Get("/v1/models/needle%2D17m").body).at("id"), "needle-17m");
  EXPECT_TRUE(Json::parse(Get("/version").body).contains("version"));
  const HttpClient::Response health = Get("/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(Json::parse(health.body).at("workers").size(), 4u);
  EXPECT_EQ(Json::parse(health.body).at("status"), "ok");
}

TEST_F(HttpFrontTest, ExportsMetricsWithClosedLabels) {
  FailFirst("", {.status = absl::UnavailableError("gone")}, "green.");
  StartReady();
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  const std::string metrics = Fetch(router_->ports().metrics, "GET", "/metrics").body;
  for (const char* series :
       {"baton_requests_total{role=\"router\",endpoint=\"chat_completions\",outcome=\"ok\"} 1",
        "baton_retries_total{role=\"router\",leg=\"decode\",reason=\"crash\"} 1",
        "baton_route_decisions_total{role=\"router\",policy=\"round-robin\"} 2",
        "baton_time_to_first_token_seconds_count{role=\"router\"} 1",
        "baton_request_duration_seconds_count{role=\"router\"} 1",
        "baton_requests_running{role=\"router\"} 0", "baton_worker_health{",
        "baton_stage_duration_seconds_bucket", "baton_http_connections"}) {
    EXPECT_THAT(metrics, HasSubstr(series));
  }
}

}  // namespace
}  // namespace baton::router
