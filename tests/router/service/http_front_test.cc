#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "tests/router/service/router_fixture.h"

namespace baton::router {
namespace {

using baton::testing::Answer;
using baton::testing::Fetch;
using baton::testing::HttpClient;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kChatPath = "/v1/chat/completions";
constexpr const char* kCompletionPath = "/v1/completions";

class HttpFrontTest : public RouterFixture {
 protected:
  Json ErrorOf(const HttpClient::Response& response) {
    return Json::parse(response.body).at("error");
  }
};

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
  std::vector<Json> chunks;
  size_t begin = 0;
  while (true) {
    const size_t end = response.body.find("\n\n", begin);
    ASSERT_NE(end, std::string::npos);
    const std::string event = response.body.substr(begin, end - begin);
    begin = end + 2;
    ASSERT_THAT(event, StartsWith("data: "));
    if (event == "data: [DONE]") break;
    chunks.push_back(Json::parse(event.substr(6)));
    for (const Json& choice : chunks.back().at("choices")) {
      content += choice.at("delta").value("content", "");
    }
  }
  EXPECT_EQ(begin, response.body.size());
  EXPECT_EQ(content, "green.");
  ASSERT_GE(chunks.size(), 4u);
  EXPECT_EQ(chunks.front().at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(chunks[chunks.size() - 2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), Tokens().Encode("green.").size());
  EXPECT_EQ(chunks.back().at("baton").at("attempts"), 1);
  client.SendRequest("GET", "/version");
  EXPECT_EQ(client.Read().status, 200);  // the connection is kept
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

TEST_F(HttpFrontTest, SpreadsRequestsOverTheWorkers) {
  AnswerAlways(".");
  StartReady();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 4u);
  EXPECT_EQ(decode_[1]->requests().size(), 4u);
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

TEST_F(HttpFrontTest, RetriesElsewhereWhenAWorkerIsGone) {
  FailFirst("", {.status = absl::UnavailableError("gone")}, "green.");
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x", /*stream=*/true));
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr("\"attempts\":2"));
  ASSERT_EQ(decode_[0]->requests().size(), 1u);
  ASSERT_EQ(decode_[1]->requests().size(), 1u);
  const v1::AttemptId a = decode_[0]->requests()[0].attempt();
  const v1::AttemptId b = decode_[1]->requests()[0].attempt();
  EXPECT_EQ(a.request().high(), b.request().high());
  EXPECT_EQ(a.attempt() + b.attempt(), 3u);
  EXPECT_EQ(decode_[0]->requests()[0].sampling().seed(),
            decode_[1]->requests()[0].sampling().seed());
}

TEST_F(HttpFrontTest, RetriesWhatTheClientHasNotSeenAfterTokensCame) {
  FailFirst("half an answer", {.status = absl::UnavailableError("gone")}, "green.");
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body).at("choices").at(0).at("message").at("content"), "green.");
}

TEST_F(HttpFrontTest, AvoidsThePrefillWorkerThatAFailureNames) {
  absl::Status status = absl::UnavailableError("prefill worker is gone");
  v1::FailureDetail detail;
  detail.set_leg(v1::FailureDetail::LEG_PREFILL);
  *detail.mutable_peer() = prefill_[0]->self();
  rpc::AttachFailureDetail(detail, status);
  FailFirst("", {.status = status}, ".");
  StartReady();
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  bool saw_second_attempt = false;
  for (const auto& worker : decode_) {
    for (const v1::DecodeGenerateRequest& request : worker->requests()) {
      if (request.attempt().attempt() != 2) continue;
      saw_second_attempt = true;
      ASSERT_EQ(request.prefill_workers_size(), 1);
      EXPECT_EQ(request.prefill_workers(0).address(), prefill_[1]->address());
    }
  }
  EXPECT_TRUE(saw_second_attempt);
}

TEST_F(HttpFrontTest, AStreamThatBreaksEndsWithAnErrorAndWithoutDone) {
  FailFirst("The grass", {.status = absl::UnavailableError("gone")}, "never");
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x", /*stream=*/true));
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body,
              HasSubstr("data: {\"error\":{\"message\":\"the decode worker is gone"));
  EXPECT_THAT(response.body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(response.body, Not(HasSubstr("finish_reason\":\"")));
  EXPECT_EQ(DecodeCalls(), 1u);
}

TEST_F(HttpFrontTest, ABusyFleetIs429WithRetryAfter) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.messages = {}, .status = absl::ResourceExhaustedError("queue is full")};
    });
  }
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_EQ(ErrorOf(response).at("message"), "queue is full");
  EXPECT_EQ(DecodeCalls(), 2u);
}

TEST_F(HttpFrontTest, ARequestThatCrashesTwoWorkersIs503) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.messages = {}, .status = absl::UnavailableError("gone")};
    });
  }
  RouterConfig config = Config();
  config.max_attempts = 5;
  StartReady(config);
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_EQ(DecodeCalls(), 2u);
}

TEST_F(HttpFrontTest, WithoutReadyWorkersHealthAndRequestsAre503) {
  for (const auto& worker : decode_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.set_ready(false); });
  }
  Start();
  ASSERT_TRUE(WaitForReady(2));
  EXPECT_EQ(Get("/health").status, 503);
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(ErrorOf(response).at("message").get<std::string>(), HasSubstr("no decode worker"));
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

TEST_F(HttpFrontTest, AWorkerWithAnotherTokenizerIsNotUsed) {
  decode_[0]->SetInfo([](v1::GetInfoResponse& info) { info.set_tokenizer_hash(1); });
  decode_[1]->SetInfo([](v1::GetInfoResponse& info) { info.set_tokenizer_hash(Tokens().hash()); });
  AnswerAlways(".");
  Start();
  ASSERT_TRUE(WaitForReady(3));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 0u);
  EXPECT_THAT(Get("/health").body, HasSubstr("tokenizer hash"));
}

TEST_F(HttpFrontTest, WorkersThatFitNobodyAreNamedWithTheReason) {
  prefill_[0]->SetInfo([](v1::GetInfoResponse& info) { info.set_semantics_hash(0xf8); });
  AnswerAlways(".");
  Start();
  ASSERT_TRUE(WaitForReady(3));
  const Json health = Json::parse(Get("/health").body);
  EXPECT_EQ(health.at("status"), "ok");
  EXPECT_FALSE(health.at("workers")[0].at("ready").get<bool>());
  EXPECT_THAT(health.at("workers")[0].at("reason").get<std::string>(),
              AllOf(HasSubstr("semantics hash is 00000000000000f8"), HasSubstr("2 ready decode")));
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  const std::string metrics = Fetch(router_->ports().metrics, "GET", "/metrics").body;
  const std::string labels = absl::StrCat("{role=\"router\",worker=\"", prefill_[0]->address(),
                                          "\",worker_role=\"prefill\"}");
  EXPECT_THAT(metrics, HasSubstr(absl::StrCat("baton_worker_mismatch", labels, " 1\n")));
  EXPECT_THAT(metrics, HasSubstr(absl::StrCat("baton_worker_health", labels, " 0\n")));
}

TEST_F(HttpFrontTest, EveryAnswerOfAGeneratingEndpointHasARequestId) {
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
}

TEST_F(HttpFrontTest, WorkersAreFoundByName) {
  AnswerAlways("green.");
  RouterConfig config = Config();
  const std::string address = decode_[0]->address();
  config.decode_workers = {"dns:localhost" + address.substr(address.rfind(':'))};
  Start(config);
  ASSERT_TRUE(WaitForReady(3));
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 1u);
  EXPECT_THAT(Fetch(router_->ports().metrics, "GET", "/metrics").body,
              HasSubstr("baton_worker_health{role=\"router\",worker=\"127.0.0.1"));
}

TEST_F(HttpFrontTest, AnEntryThatIsNoAddressIsNamedAtTheStart) {
  RouterConfig config = Config();
  config.prefill_workers = {"prefill"};
  EXPECT_THAT(Router::Start(config),
              baton::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'prefill'")));
}

TEST_F(HttpFrontTest, AHungWorkerIs504AndIsCancelled) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.messages = {}, .status = {}, .hang = true};
    });
  }
  RouterConfig config = Config();
  config.request_timeout = milliseconds(100);
  StartReady(config);
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 504);
  EXPECT_EQ(ErrorOf(response).at("code"), "timeout");
}

TEST_F(HttpFrontTest, AClientThatLeavesBeforeTheFirstTokenCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest&) {
    return Plan{.messages = {}, .status = {}, .hang = true};
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  client.Close();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

TEST_F(HttpFrontTest, AClientThatLeavesInTheMiddleCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("The grass")), .status = {}};
    plan.messages.back().clear_finish_reason();
    plan.hang = true;
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x", /*stream=*/true).dump());
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_NE(client.ReadUntil("\"content\":\""), "");
  client.Close();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

TEST_F(HttpFrontTest, AStopStringCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("red green blue")), .status = {}};
    plan.messages.back().clear_finish_reason();
    plan.hang = true;
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  Json request = Chat("x");
  request["stop"] = " blue";
  const HttpClient::Response response = Post(kChatPath, request);
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body).at("choices").at(0).at("message").at("content"),
            "red green");
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
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
      {"POST", kChatPath, R"({"messages":[{"role":"user","content":"x"}],"n":2})", 400, "n is 2"},
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

TEST_F(HttpFrontTest, OtherContentTypesAre415) {
  StartReady();
  HttpClient client(router_->ports().http);
  client.Send(absl::StrCat("POST ", kChatPath,
                           " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                           "Content-Length: 2\r\n\r\n{}"));
  EXPECT_EQ(client.Read().status, 415);
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

TEST_F(HttpFrontTest, DrainingRefusesNewRequestsAndFinishesRunningOnes) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("green.")), .status = {}};
    plan.hang = true;  // the last token came, the end has not
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient running(router_->ports().http);
  running.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  bool drained = false;
  std::jthread drain([&] { drained = router_->Drain(seconds(20)); });
  while (Get("/health").status == 200) {
  }
  EXPECT_EQ(Get("/health").status, 503);
  const HttpClient::Response refused = Post(kChatPath, Chat("x"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  decode_[0]->Release();
  EXPECT_EQ(running.Read().status, 200);
  drain.join();
  EXPECT_TRUE(drained);
}

TEST_F(HttpFrontTest, DrainingCancelsWhatTakesTooLong) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.messages = {}, .status = {}, .hang = true};
    });
  }
  StartReady();
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  EXPECT_FALSE(router_->Drain(milliseconds(10)));
  EXPECT_EQ(client.Read().status, 503);
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::router
