#include <future>

#include "absl/strings/str_cat.h"
#include "common/config.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/router/service/router_fixture.h"

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using ::testing::HasSubstr;
using ::testing::Not;

// Each limit is set by its flag, and what is beyond it answered in OpenAI's shape.
class LimitsTest : public RouterFixture {
 protected:
  void StartWith(std::vector<std::string> flags) {
    RouterConfig config = Config();
    ConfigParser parser("baton-router", "");
    BindRouterConfig(config, parser);
    flags.insert(flags.begin(), {"baton-router", absl::StrCat("--model-dir=", config.model_dir),
                                 absl::StrCat("--decode-workers=", decode_[0]->address(), ",",
                                              decode_[1]->address())});
    std::vector<const char*> argv;
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    BATON_ASSERT_OK_AND_ASSIGN(const ParseOutcome outcome,
                               parser.Parse(static_cast<int>(argv.size()), argv.data()));
    ASSERT_EQ(outcome, ParseOutcome::kRun);
    AnswerAlways("green.");
    StartReady(config);
  }

  int port() const { return router_->ports().http; }

  static void ExpectError(const HttpClient::Response& response, int status,
                          const std::string& message) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json body = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << response.body;
    const Json& error = body.at("error");
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(message));
    EXPECT_TRUE(error.contains("type") && error.contains("param") && error.contains("code"));
  }
};

TEST_F(LimitsTest, BodiesAndHeaders) {
  StartWith({"--max-body-bytes=2000", "--max-header-bytes=1500"});
  ExpectError(Post(kChatPath, Chat(std::string(3000, 'x'))), 413, "2000 bytes");
  HttpClient client(port());
  client.Send(absl::StrCat("GET /health HTTP/1.1\r\nX: ", std::string(3000, 'x'), "\r\n\r\n"));
  ExpectError(client.Read(), 431, "1500 bytes");
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
}

TEST_F(LimitsTest, BodiesOfAllConnectionsTogether) {
  StartWith({"--max-body-bytes=100000", "--max-buffered-bytes=100000"});
  std::unique_ptr<HttpClient> slow;
  HttpClient::Response refused;
  // Whoever comes second is refused: that may be the slow one, and then it comes again, later and
  // later after the last one has gone, as nobody tells when the router has received that much.
  for (int i = 0; i < 1000 && refused.status != 503; ++i) {
    if (i % 50 == 0) {
      slow.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(i));
      slow = std::make_unique<HttpClient>(port());
      slow->Send(absl::StrCat("POST ", kCompletionPath,
                              " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
                              std::string(90'000, ' ')));
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + i));
    }
    refused = Fetch(port(), "POST", kChatPath, std::string(20'000, ' '));
  }
  ExpectError(refused, 503, "being received");
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
}

// To a service that wants no key.
TEST_F(LimitsTest, MessagesOfAllGrpcCallsTogether) {
  StartWith({"--max-body-bytes=100000", "--max-buffered-bytes=100000"});
  grpc::GenericStub stub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                             grpc::InsecureChannelCredentials()));
  const grpc::Slice slice(std::string(96 << 20, 'x'));
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { ended.set_value(std::move(status)); });
  const grpc::Status status = ended.get_future().get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), Not(HasSubstr("larger than max"))) << "received whole";
  EXPECT_EQ(Post(kChatPath, Chat("x")).status, 200);
}

TEST_F(LimitsTest, ABudgetThatNoBodyOfTheLargestSizeFitsIsRefused) {
  RouterConfig config = Config();
  config.max_buffered_bytes = config.max_body_bytes - 1;
  EXPECT_THAT(Router::Start(config).status(),
              baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("max-buffered-bytes")));
}

TEST_F(LimitsTest, SlowHeadersAndBodiesAndIdleConnections) {
  StartWith({"--header-timeout=50ms", "--body-timeout=50ms", "--idle-timeout=500ms"});
  HttpClient headers(port());
  headers.Send("POST /v1/completions HTTP/1.1\r\n");
  const HttpClient::Response unread = headers.Read();
  ExpectError(unread, 408, "headers did not arrive in time");
  EXPECT_NE(unread.headers.at("x-request-id"), "");
  HttpClient body(port());
  body.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: late\r\nContent-Length: "
      "9\r\n\r\n{");
  const HttpClient::Response late = body.Read();
  ExpectError(late, 408, "body did not arrive in time");
  EXPECT_EQ(late.headers.at("x-request-id"), "late");
  EXPECT_TRUE(HttpClient(port()).AtEnd());
}

TEST_F(LimitsTest, Connections) {
  StartWith({"--max-connections=2"});
  std::vector<std::unique_ptr<HttpClient>> open;
  for (int i = 0; i < 100 && open.size() < 2; ++i) {  // those that asked for /health may linger
    auto client = std::make_unique<HttpClient>(port());
    client->SendRequest("GET", "/version");
    if (client->Read().status == 200) open.push_back(std::move(client));
  }
  ASSERT_EQ(open.size(), 2u);
  const HttpClient::Response refused = Fetch(port(), "GET", "/version");
  ExpectError(refused, 503, "too many connections");
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
}

TEST_F(LimitsTest, PromptsByTokenCount) {
  StartWith({"--max-prompt-tokens=10"});
  const auto prompt = [](size_t tokens) {
    return Json{{"prompt", std::vector<int>(tokens, 50)}, {"max_tokens", 1}};
  };
  EXPECT_EQ(Post(kCompletionPath, prompt(10)).status, 200);
  const HttpClient::Response refused = Post(kCompletionPath, prompt(11));
  ExpectError(refused, 400, "11 tokens, at most 10");
  EXPECT_EQ(Json::parse(refused.body).at("error").at("code"), "context_length_exceeded");
}

TEST_F(LimitsTest, LogprobsOfAnswersThatAreNotStreamed) {
  StartWith({"--max-logprobs-bytes=100000"});  // 195 of 512 bytes
  Json chat = Chat("x");
  chat.update({{"logprobs", true}, {"top_logprobs", 2}, {"n", 2}, {"max_tokens", 32}});
  EXPECT_EQ(Post(kChatPath, chat).status, 200);  // 192
  chat["max_tokens"] = 33;
  ExpectError(Post(kChatPath, chat), 400,
              "2 choices (n) of up to 33 tokens (max_tokens) with 2 others at each (top_logprobs) "
              "may take 101376 bytes, at most 100000 are held");
  chat["stream"] = true;
  EXPECT_EQ(Post(kChatPath, chat).status, 200);
  chat.update({{"stream", false}, {"logprobs", false}, {"top_logprobs", 0}});
  EXPECT_EQ(Post(kChatPath, chat).status, 200);
}

TEST_F(LimitsTest, LogprobsOfAnswersOfAnyLength) {
  StartWith({"--max-logprobs-bytes=16000"});  // of one token with 20 others, of 31 with none
  Json chat = Chat("x");
  chat.update({{"logprobs", true}, {"top_logprobs", 20}});
  chat.erase("max_tokens");
  ExpectError(Post(kChatPath, chat), 400, "the answer has more than 1 tokens");
  chat["top_logprobs"] = 0;
  EXPECT_EQ(Post(kChatPath, chat).status, 200);
}

TEST_F(LimitsTest, TextsThatCannotFitAnyWorkerAreNotTokenized) {
  StartWith({});
  const std::string text(8 << 20, 'x');
  ExpectError(Post(kCompletionPath, {{"prompt", text}}), 400, "more than 4096 tokens");
  ExpectError(Post(kChatPath, Chat(text)), 400, "more than 4096 tokens");
  EXPECT_EQ(DecodeCalls(), 0u);
}

}  // namespace
}  // namespace baton::router
