#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/router/http/server_fixture.h"
#include "tests/testing/http_client.h"

namespace baton::router {
namespace {

using baton::testing::Fetch;
using baton::testing::HttpClient;
using baton::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A client that sends most of a body and stops must not take the memory of everybody else.
TEST_F(HttpServerTest, BodiesThatAreBeingReceivedShareABudget) {
  constexpr size_t kBudget = 200 << 10;
  constexpr size_t kSmall = 50 << 10;
  Start({.max_body_bytes = kBudget, .max_buffered_bytes = kBudget});
  const std::string most(kBudget - kSmall / 2, 'x');
  const std::string small(kSmall, 'y');
  int small_status = 0;
  HttpClient::Response whole;
  // Whoever comes second is refused: that may be the slow one, and then all is done again.
  for (int attempt = 0; attempt < 20 && whole.status != 200; ++attempt) {
    HttpClient slow(port());
    slow.Send(absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ", kBudget,
                           "\r\n\r\n", most));
    small_status = 0;
    for (int i = 0; i < 50 && small_status != 503; ++i) {
      small_status = Fetch(port(), "POST", "/echo", small).status;
    }
    EXPECT_EQ(Fetch(port(), "GET", "/echo").status, 200) << "which has no body";
    slow.Send(std::string(kBudget - most.size(), 'x'));
    whole = slow.Read();
  }
  EXPECT_EQ(small_status, 503);
  EXPECT_EQ(whole.body.size(), strlen("POST /echo ") + kBudget);
  EXPECT_EQ(Fetch(port(), "POST", "/echo", small).status, 200) << "there is room again";
}

// Else what a worker generates would pile up for a client that takes none of it.
TEST_F(HttpServerTest, AStreamThatIsReadTooSlowlyIsCutOff) {
  constexpr size_t kPiece = 1 << 20;
  Start({.max_unread_bytes = 2 * kPiece});
  HttpClient client(port());
  client.SendRequest("GET", "/hold");
  const std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  reply->StartStream({});
  size_t written = 0;
  for (; written < 64 && handler_.disconnected() == 0;
       ++written) {  // the system's buffers take some
    reply->Write(std::string(kPiece, 'x'));
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_TRUE(handler_.WaitForDisconnect());
  reply->Finish();
  const HttpClient::Response response = client.Read();
  EXPECT_FALSE(response.complete);
  EXPECT_LT(response.body.size(), written * kPiece);
}

TEST_F(HttpServerTest, AStreamThatIsReadMayBeAsLongAsItLikes) {
  Start({.max_unread_bytes = 1000});
  HttpClient client(port());
  client.SendRequest("GET", "/hold");
  const std::shared_ptr<HttpReply> reply = handler_.TakeHeld();
  reply->StartStream({});
  EXPECT_EQ(client.ReadHead().status, 200);
  for (int i = 0; i < 10; ++i) {
    reply->Write(std::string(2000, 'x') + ".");  // a piece is written, however large
    EXPECT_NE(client.ReadUntil("."), "");
  }
  EXPECT_EQ(handler_.disconnected(), 0);
  reply->Finish();
}

TEST_F(HttpServerTest, TooLargeABodyIs413WhetherAnnouncedOrChunked) {
  Start({.max_body_bytes = 1000});
  const HttpClient::Response announced = Fetch(port(), "POST", "/echo", std::string(5 << 20, 'x'));
  EXPECT_EQ(announced.status, 413);
  EXPECT_THAT(announced.body, HasSubstr("1000 bytes"));
  EXPECT_EQ(announced.headers.at("connection"), "close");
  HttpClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
              std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 413);
  EXPECT_EQ(Fetch(port(), "POST", "/echo", std::string(1000, 'x')).status, 200);
}

TEST_F(HttpServerTest, TooLongHeadersAre431) {
  Start({.max_header_bytes = 2000});
  HttpClient client(port());
  client.Send("GET /echo HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(5000, 'x') + "\r\n\r\n");
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.status, 431);
  EXPECT_THAT(response.body, HasSubstr("2000 bytes"));
}

TEST_F(HttpServerTest, HeadersOrBodiesThatDoNotArriveInTimeAre408) {
  Start({.header_timeout = milliseconds(50), .body_timeout = milliseconds(50)});
  HttpClient headers(port());
  headers.Send("GET /echo HTTP/1.1\r\nHos");
  const HttpClient::Response late_headers = headers.Read();
  EXPECT_EQ(late_headers.status, 408);
  EXPECT_THAT(late_headers.body, HasSubstr("headers"));
  HttpClient body(port());
  body.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  const HttpClient::Response late_body = body.Read();
  EXPECT_EQ(late_body.status, 408);
  EXPECT_THAT(late_body.body, HasSubstr("body"));
}

// So that whoever reads the refusal can tell of which request it is.
TEST_F(HttpServerTest, WhatTheServerRefusesItselfIsNamedByAsMuchOfTheHeadAsCame) {
  Start({.max_header_bytes = 2000, .max_body_bytes = 1000, .body_timeout = milliseconds(50)});
  const std::string post = "POST /echo HTTP/1.1\r\nX-Request-Id: its-own.1\r\n";
  for (const auto& [status, rest] : std::vector<std::pair<int, std::string>>{
           {413, "Host: x\r\nContent-Length: 2000\r\n\r\n"},
           {413, "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x')},
           {408, "Host: x\r\nContent-Length: 10\r\n\r\nabc"},
           {431, "X: " + std::string(5000, 'x')},
           {400, "Content-Length: 0\r\n\r\n"},  // no Host
           {415, "Host: x\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n"}}) {
    HttpClient client(port());
    client.Send(post + rest);
    const HttpClient::Response response = client.Read();
    EXPECT_EQ(response.status, status) << rest;
    EXPECT_EQ(response.headers.at("x-head-id"), "its-own.1") << rest;
  }
}

TEST_F(HttpServerTest, ARequestThatTricklesInIsNotGivenMoreTime) {
  Start({.header_timeout = milliseconds(100), .body_timeout = milliseconds(100)});
  for (const char* start : {"GET /echo HTTP/1.1\r\nX: ",
                            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"}) {
    HttpClient client(port());
    client.Send(start);
    std::atomic<bool> answered = false;
    std::jthread trickle([&] {
      for (int i = 0; i < 500 && !answered; ++i) {
        client.Send("x");
        std::this_thread::sleep_for(milliseconds(10));
      }
    });
    EXPECT_EQ(client.Read().status, 408) << start;
    answered = true;
  }
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedWithoutAWord) {
  Start({.idle_timeout = milliseconds(50)});
  HttpClient client(port());
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, GarbageIs400) {
  Start();
  for (const char* garbage :
       {"\x16\x03\x01 tls hello\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    HttpClient client(port());
    client.Send(garbage);
    EXPECT_EQ(client.Read().status, 400) << garbage;
  }
}

// Else what follows the head would be taken for the next request.
TEST_F(HttpServerTest, ABodyUnderACodingThatIsNotKnownEndsTheConnection) {
  Start();
  struct Case {
    const char* header;
    int status;
  };
  for (const Case& c :
       {Case{"Transfer-Encoding: xchunked", 501}, Case{"Transfer-Encoding: chunked, identity", 501},
        Case{"Transfer-Encoding: gzip, chunked", 501},
        Case{"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501},
        Case{"Content-Encoding: gzip\r\nContent-Length: 36", 415},
        Case{"Transfer-Encoding: chunked\r\nContent-Length: 36", 400}}) {
    HttpClient client(port());
    client.Send(std::string("POST /echo HTTP/1.1\r\nHost: x\r\n") + c.header +
                "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    const HttpClient::Response response = client.Read();
    EXPECT_EQ(response.status, c.status) << c.header << ": " << response.body;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd()) << c.header;
  }
}

TEST_F(HttpServerTest, ChunkedAndIdentityBodiesAreTaken) {
  Start();
  HttpClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n"
      "Content-Encoding: identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "POST /echo abc");
}

TEST_F(HttpServerTest, ExactlyOneHostIsDemandedOfHttp11) {
  Start();
  for (const char* hosts : {"", "Host: x\r\nHost: y\r\n"}) {
    HttpClient client(port());
    client.Send(std::string("GET /echo HTTP/1.1\r\n") + hosts + "\r\n");
    EXPECT_EQ(client.Read().status, 400) << hosts;
    EXPECT_TRUE(client.AtEnd());
  }
  HttpClient old(port());
  old.Send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.Read().body, "GET /echo ");
}

TEST_F(HttpServerTest, ATargetMayNameTheServer) {
  Start();
  HttpClient client(port());
  for (const auto& [target, path] :
       std::vector<std::pair<std::string, std::string>>{{"http://x:80/echo?q=http://y/z", "/echo"},
                                                        {"HTTPS://x", "/"},
                                                        {"/http://x", "/http://x"}}) {
    client.SendRequest("GET", target);
    EXPECT_EQ(client.Read().body, "GET " + path + " ");
  }
}

TEST_F(HttpServerTest, AHeadIsAnsweredAsAGetWithoutTheBody) {
  Start();
  HttpClient client(port());
  client.SendRequest("HEAD", "/echo");
  const HttpClient::Response head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "10");
  client.SendRequest("GET", "/echo");  // what comes next is its answer
  EXPECT_EQ(client.Read().body, "GET /echo ");
  client.Send("HEAD /echo HTTP/1.1\r\n\r\n");  // refused: no Host
  EXPECT_EQ(client.ReadHead().status, 400);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, AnAddressWithAPortThatWouldWrapIsRefused) {
  EXPECT_THAT(HttpServer::Start({.listen = "127.0.0.1:99999"}, &handler_, &connections_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("127.0.0.1:99999")));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  Start({.max_connections = 1});
  HttpClient first(port());
  first.SendRequest("GET", "/echo");
  EXPECT_EQ(first.Read().status, 200);
  const HttpClient::Response refused = Fetch(port(), "GET", "/echo");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "too many connections");
  first.SendRequest("GET", "/echo");
  EXPECT_EQ(first.Read().status, 200);
}

TEST_F(HttpServerTest, RefusedConnectionsTakeNoPlaceFromOthers) {
  Start({.max_connections = 1});
  HttpClient served(port());
  HttpClient told(port());
  HttpClient closed(port());  // there is already one, as many as are served, that is being told
  EXPECT_TRUE(closed.AtEnd());
  EXPECT_EQ(told.Read().status, 503);
  served.Close();  // `told` lingers
  HttpClient::Response response;
  for (int i = 0; i < 100 && response.status != 200; ++i) {
    response = Fetch(port(), "GET", "/echo");
    if (response.status != 200) std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(response.status, 200);
}

TEST_F(HttpServerTest, TellsAClientThatWaitsForItToSendTheBody) {
  Start();
  HttpClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadHead().status, 100);
  client.Send("body");
  EXPECT_EQ(client.Read().body, "POST /echo body");
}

// Nobody who may not ask can have memory held for a body.
TEST_F(HttpServerTest, WhatTheHandlerRefusesByItsHeadIsNotRead) {
  Start({.max_buffered_bytes = 1000});
  HttpClient polite(port()), rude(port());
  const std::string head = "POST /closed HTTP/1.1\r\nHost: x\r\nAuthorization: me\r\n";
  polite.Send(head + "Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n");
  rude.Send(head + "Content-Length: 2000\r\n\r\n" + std::string(1999, 'x'));
  for (HttpClient* client : {&polite, &rude}) {
    const HttpClient::Response response = client->Read();
    EXPECT_EQ(response.status, 401) << "not 100, and no 503 for want of room";
    EXPECT_EQ(response.body, "me");
    EXPECT_EQ(response.headers.at("connection"), "close");
  }
}

}  // namespace
}  // namespace baton::router
