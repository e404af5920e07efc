#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "tests/router/service/router_fixture.h"

// What becomes of requests as workers are gone, full, silent or of another kind.

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using WorkersTest = RouterFixture;

TEST_F(WorkersTest, SpreadsRequestsOverTheWorkers) {
  AnswerAlways(".");
  StartReady();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 4u);
  EXPECT_EQ(decode_[1]->requests().size(), 4u);
}

TEST_F(WorkersTest, RetriesElsewhereWhenAWorkerIsGone) {
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

TEST_F(WorkersTest, RetriesWhatTheClientHasNotSeenAfterTokensCame) {
  FailFirst("half an answer", {.status = absl::UnavailableError("gone")}, "green.");
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body).at("choices").at(0).at("message").at("content"), "green.");
}

TEST_F(WorkersTest, AvoidsThePrefillWorkerThatAFailureNames) {
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

TEST_F(WorkersTest, AStreamThatBreaksEndsWithAnErrorAndWithoutDone) {
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

TEST_F(WorkersTest, ABusyFleetIs429WithRetryAfter) {
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

TEST_F(WorkersTest, ARequestThatCrashesTwoWorkersIs503) {
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

TEST_F(WorkersTest, AHungWorkerIs504AndIsCancelled) {
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

TEST_F(WorkersTest, WithoutReadyWorkersHealthAndRequestsAre503) {
  for (const auto& worker : decode_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.set_ready(false); });
  }
  Start();
  ASSERT_TRUE(WaitForReady(2));
  const HttpClient::Response health = Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body).at("status"), "unavailable");
  EXPECT_THAT(Json::parse(health.body).at("reason").get<std::string>(),
              AllOf(StartsWith("no decode worker is ready: " + decode_[0]->address()),
                    Not(HasSubstr("prefill"))));
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(ErrorOf(response).at("message").get<std::string>(), HasSubstr("no decode worker"));
}

TEST_F(WorkersTest, AWorkerWithAnotherTokenizerIsNotUsed) {
  decode_[0]->SetInfo([](v1::GetInfoResponse& info) { info.set_tokenizer_hash(1); });
  decode_[1]->SetInfo([](v1::GetInfoResponse& info) { info.set_tokenizer_hash(Tokens().hash()); });
  AnswerAlways(".");
  Start();
  ASSERT_TRUE(WaitForReady(3));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 0u);
  EXPECT_THAT(Get("/health").body, HasSubstr("tokenizer hash"));
}

// As one that was built before there was such a number: a penalty would be lost on it.
TEST_F(WorkersTest, AWorkerOfAnOlderReleaseIsNotAskedWhatItDoesNotKnow) {
  decode_[0]->SetInfo([](v1::GetInfoResponse& info) { info.clear_request_protocol(); });
  AnswerAlways(".");
  Start();
  ASSERT_TRUE(WaitForReady(3));
  Json chat = Chat("x");
  chat["presence_penalty"] = 1;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Post(kChatPath, chat).status, 200);
  EXPECT_EQ(decode_[0]->requests().size(), 0u);
  EXPECT_THAT(Get("/health").body, HasSubstr("understands version 0 of the request protocol"));
}

TEST_F(WorkersTest, NamesStandBesideAddressesInHealthAndAnswersAndInNoMetric) {
  for (const auto& worker : prefill_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.set_name("some-prefill"); });
  }
  AnswerAlways(".");
  StartReady();
  const Json workers = Json::parse(Get("/health").body).at("workers");
  EXPECT_EQ(workers[0].at("name"), "some-prefill");
  EXPECT_EQ(workers[0].at("address"), prefill_[0]->address());
  EXPECT_FALSE(workers[2].contains("name"));
  const Json served = Json::parse(Post(kChatPath, Chat("x")).body).at("baton");
  EXPECT_EQ(served.at("prefill_name"), "some-prefill");
  EXPECT_NE(served.at("prefill_worker"), "some-prefill");
  EXPECT_FALSE(served.contains("decode_name"));
  EXPECT_THAT(Fetch(router_->ports().metrics, "GET", "/metrics").body,
              Not(HasSubstr("some-prefill")));
}

TEST_F(WorkersTest, WorkersThatFitNobodyAreNamedWithTheReason) {
  prefill_[0]->SetInfo([](v1::GetInfoResponse& info) { info.set_semantics_hash(0xf8); });
  AnswerAlways(".");
  Start();
  ASSERT_TRUE(WaitForReady(3));
  const Json health = Json::parse(Get("/health").body);
  EXPECT_EQ(health.at("status"), "ok");
  EXPECT_FALSE(health.at("workers")[0].at("ready").get<bool>());
  EXPECT_THAT(health.at("workers")[0].at("reason").get<std::string>(),
              AllOf(HasSubstr("is 00000000000000f8"), HasSubstr("2 ready decode")));
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
  const std::string metrics = Fetch(router_->ports().metrics, "GET", "/metrics").body;
  const std::string labels = absl::StrCat("{role=\"router\",worker=\"", prefill_[0]->address(),
                                          "\",worker_role=\"prefill\"}");
  EXPECT_THAT(metrics, HasSubstr(absl::StrCat("baton_worker_mismatch", labels, " 1\n")));
  EXPECT_THAT(metrics, HasSubstr(absl::StrCat("baton_worker_health", labels, " 0\n")));
}

TEST_F(WorkersTest, WithoutACommonTransportTheAnswerIs503AndSaysWhich) {
  for (const auto& worker : prefill_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.add_transports("shm"); });
  }
  for (const auto& worker : decode_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.add_transports("grpc"); });
  }
  Start();
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 503);
  const std::string why = absl::StrCat("the transports of ", prefill_[0]->address(),
                                       " are shm, those of ", decode_[0]->address(), " are grpc");
  EXPECT_THAT(ErrorOf(response).at("message").get<std::string>(), HasSubstr(why));
  const HttpClient::Response health = Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr(why));
}

// As of a machine that lacks what the transport needs: it shows when it is tried.
TEST_F(WorkersTest, ATransportThatDoesNotWorkIsA503) {
  v1::FailureDetail detail;
  detail.set_leg(v1::FailureDetail::LEG_PREFILL);
  *detail.mutable_peer() = prefill_[0]->self();
  absl::Status status = absl::FailedPreconditionError("no common transport works; shm: no luck");
  rpc::AttachFailureDetail(detail, status);
  for (const auto& worker : decode_) {
    worker->SetBehaviour([=](const v1::DecodeGenerateRequest&) { return Plan{.status = status}; });
  }
  StartReady();
  const HttpClient::Response response = Post(kChatPath, Chat("x"));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(ErrorOf(response).at("message").get<std::string>(),
              HasSubstr(absl::StrCat("cannot work with prefill worker ", prefill_[0]->address(),
                                     ": no common transport works; shm: no luck")));
}

TEST_F(WorkersTest, WorkersAreFoundByName) {
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

TEST_F(WorkersTest, AWorkerIsNamedAsItIsListedAndWhatItAdvertisesStandsBeside) {
  decode_[0]->SetInfo(
      [](v1::GetInfoResponse& info) { info.mutable_self()->set_address("decode.example:7020"); });
  StartReady();
  const Json health = Json::parse(Get("/health").body);
  for (const Json& worker : health.at("workers")) {
    const bool renamed = worker.at("address") == decode_[0]->address();
    EXPECT_EQ(worker.contains("advertises"), renamed);
    if (renamed) {
      EXPECT_EQ(worker.at("advertises"), "decode.example:7020");
    }
  }
}

}  // namespace
}  // namespace baton::router
