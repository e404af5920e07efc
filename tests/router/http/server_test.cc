#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/router/http/server_fixture.h"
#include "tests/testing/http_client.h"

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using baton::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST_F(HttpServerTest, AnswersARequest) {
  Start();
  const HttpClient::Response response = Fetch(port(), "POST", "/echo?query=1", "body");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST /echo body");
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_TRUE(response.complete);
}

TEST_F(HttpServerTest, KeepsTheConnectionForTheNextRequest) {
  Start();
  HttpClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.SendRequest("GET", "/echo");
    EXPECT_EQ(client.Read().body, "GET /echo ");
  }
  EXPECT_EQ(connections_.Value(), 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "first");
  std::shared_ptr<HttpReply> first = handler_.TakeHeld();
  ASSERT_NE(first, nullptr);
  client.SendRequest("POST", "/echo", "second");
  client.SendRequest("POST", "/echo", "third");
  first->Respond({.body = "answer to first"});
  EXPECT_EQ(client.Read().body, "answer to first");
  EXPECT_EQ(client.Read().body, "POST /echo second");
  EXPECT_EQ(client.Read().body, "POST /echo third");
}

TEST_F(HttpServerTest, ReadsNoFurtherAheadThanItsLimitAndLosesNothing) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "first");
  std::shared_ptr<HttpReply> first = handler_.TakeHeld();
  ASSERT_NE(first, nullptr);
  const std::string body(300 << 10, 'x');  // more than is read ahead
  std::jthread sender([&] { client.SendRequest("POST", "/echo", body); });
  first->Respond({.body = "answer to first"});
  EXPECT_EQ(client.Read().body, "answer to first");
  sender.join();
  EXPECT_EQ(client.Read().body, "POST /echo " + body);
}

TEST_F(HttpServerTest, AnswersManyConnectionsThatComeAndGo) {
  Start({.threads = 4});
  constexpr int kClients = 8;
  constexpr int kRequests = 25;
  std::atomic<int> answered = 0;
  std::vector<std::jthread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < kRequests; ++i) {
        HttpClient client(port());
        const std::string body = std::to_string(c * kRequests + i);
        client.SendRequest("POST", "/echo", body);
        if (i % 5 == 0) continue;  // leaves without waiting
        if (client.Read().body == "POST /echo " + body) ++answered;
      }
    });
  }
  for (std::jthread& client : clients) client.join();
  EXPECT_EQ(answered, kClients * kRequests * 4 / 5);
  server_->Shutdown(seconds(10));
  EXPECT_EQ(connections_.Value(), 0);
}

TEST_F(HttpServerTest, ClosesAfterTheAnswerWhenTheClientAsksForIt) {
  Start();
  HttpClient client(port());
  client.Send("GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.body, "GET /echo ");
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, StreamsInChunksAsTheyAreWritten) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->StartStream({.content_type = "text/event-stream"});
  reply->Write("data: 1\n\n");
  const HttpClient::Response head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(client.ReadUntil("data: 1\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  reply->Write("data: 2\n\n");
  EXPECT_EQ(client.ReadUntil("data: 2\n\n\r\n"), "9\r\ndata: 2\n\n\r\n");
  reply->Finish();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
  client.SendRequest("GET", "/echo");  // the connection is still good
  EXPECT_EQ(client.Read().body, "GET /echo ");
}

TEST_F(HttpServerTest, StreamsToHttp10UntilTheConnectionCloses) {
  Start();
  HttpClient client(port());
  client.Send("POST /hold HTTP/1.0\r\nContent-Length: 1\r\n\r\nx");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->StartStream({.content_type = "text/event-stream"});
  reply->Write("data: 1\n\n");
  reply->Finish();
  const HttpClient::Response response = client.Read();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(response.body, "data: 1\n\n");
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesBeforeTheFirstByte) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  client.Close();
  EXPECT_TRUE(handler_.WaitForDisconnect());
  reply->Respond({.body = "nobody reads this"});
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesInTheMiddleOfAStream) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->StartStream({});
  reply->Write("data: 1\n\n");
  EXPECT_NE(client.ReadUntil("data: 1\n\n"), "");
  client.Close();
  EXPECT_TRUE(handler_.WaitForDisconnect());
}

TEST_F(HttpServerTest, ACompleteAnswerIsNoDisconnect) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->Respond({});
  EXPECT_EQ(client.Read().status, 200);
  client.Close();
  bool called = false;
  reply->OnDisconnect([&] { called = true; });
  EXPECT_FALSE(called);
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsGivenUp) {
  Start({.write_timeout = milliseconds(50)});
  HttpClient client(port());
  client.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->StartStream({});
  reply->Write(std::string(64 << 20, 'x'));  // more than both socket buffers
  EXPECT_TRUE(handler_.WaitForDisconnect());
}

// The answer takes longer than the timeout, no part of it does.
TEST_F(HttpServerTest, AClientThatTakesALongAnswerSlowlyGetsAllOfIt) {
  Start({.write_timeout = milliseconds(300)});
  constexpr int kParts = 40;
  std::string body;
  for (int i = 0; i < kParts; ++i) body += std::string(1 << 20, 'x') + "N";
  for (const bool streamed : {false, true}) {
    HttpClient client(port());
    client.SendRequest("POST", "/hold", "x");
    std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
    ASSERT_NE(reply, nullptr);
    if (streamed) {
      reply->StartStream({});
      reply->Write(body);
      reply->Finish();
    } else {
      reply->Respond({.body = body});
    }
    EXPECT_EQ(client.ReadHead().status, 200);
    for (int i = 0; i < kParts; ++i) {
      ASSERT_NE(client.ReadUntil("N"), "") << "part " << i << (streamed ? ", streamed" : "");
      std::this_thread::sleep_for(milliseconds(15));
    }
  }
}

TEST_F(HttpServerTest, ShutdownClosesIdleConnectionsAndWaitsForAnswersUnderWay) {
  Start();
  HttpClient idle(port());
  idle.SendRequest("GET", "/echo");
  EXPECT_EQ(idle.Read().status, 200);
  HttpClient busy(port());
  busy.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  std::jthread shutdown([&] { server_->Shutdown(seconds(10)); });
  EXPECT_TRUE(idle.AtEnd());
  reply->Respond({.body = "late"});
  const HttpClient::Response response = busy.Read();
  EXPECT_EQ(response.body, "late");
  EXPECT_EQ(response.headers.at("connection"), "close");
  shutdown.join();
  EXPECT_EQ(connections_.Value(), 0);
}

TEST_F(HttpServerTest, ShutdownDoesNotWaitForEver) {
  Start();
  HttpClient busy(port());
  busy.SendRequest("POST", "/hold", "x");
  std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  server_->Shutdown(milliseconds(0));
  EXPECT_TRUE(handler_.WaitForDisconnect());
  EXPECT_TRUE(busy.AtEnd());
  reply->Respond({});
}

TEST_F(HttpServerTest, NamesTheAddressThatItCannotListenOn) {
  Start();
  const std::string taken = "127.0.0.1:" + std::to_string(port());
  EXPECT_THAT(HttpServer::Start({.listen = taken}, &handler_, &connections_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(taken)));
  EXPECT_THAT(HttpServer::Start({.listen = "nonsense"}, &handler_, &connections_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nonsense")));
}

}  // namespace
}  // namespace baton::router
