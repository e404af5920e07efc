#include <csignal>
#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "router/http/tls_context.h"
#include "tests/router/http/server_fixture.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/http_client.h"
#include "tests/testing/test_path.h"

namespace baton::router {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::baton::testing::CertificateAuthority;
using ::baton::testing::FakeClock;
using ::baton::testing::HttpClient;
using ::baton::testing::StatusIs;
using ::baton::testing::WriteAtOnce;
using ::testing::HasSubstr;

class HttpTlsTest : public HttpServerTest {
 protected:
  HttpTlsTest() : files_(ca_.Issue(folder_)) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the server has closed
    files_.ca.clear();
  }
  ~HttpTlsTest() override { fs::remove_all(folder_); }

  void Start(HttpServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    options.tls = files_;
    BATON_ASSERT_OK_AND_ASSIGN(
        server_, HttpServer::Start(options, &handler_, &connections_, &failed_handshakes_));
  }
  std::string Ca() const { return folder_ / "ca.pem"; }
  void WaitForFailures(double count) const {
    for (int i = 0; i < 500 && failed_handshakes_.Value() < count; ++i) {
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(failed_handshakes_.Value(), count);
  }

  const fs::path folder_ = testing::TestPath("http_tls");
  CertificateAuthority ca_;
  tls::CertificateFiles files_;
  prometheus::Counter failed_handshakes_;
};

TEST_F(HttpTlsTest, RequestsOfOneConnectionAreAnsweredOneAfterAnother) {
  Start();
  HttpClient client(port(), Ca());
  for (const size_t size : {0, 1, 100'000, 1'000'000}) {  // records hold 16 KiB
    const std::string body(size, 'x');
    client.SendRequest("POST", "/echo", body);
    const HttpClient::Response response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /echo " + body);
  }
  client.Send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c HT");
  EXPECT_EQ(client.Read().body, "GET /a ");
  EXPECT_EQ(client.Read().body, "GET /b ");
  client.Send("TP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /c ");
  EXPECT_EQ(failed_handshakes_.Value(), 0);
}

TEST_F(HttpTlsTest, AStreamIsWrittenWhileTheClientSendsTheNextRequest) {
  Start();
  HttpClient client(port(), Ca());
  client.SendRequest("GET", "/hold");
  const auto reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  reply->StartStream({});
  EXPECT_EQ(client.ReadHead().status, 200);
  for (int i = 0; i < 20; ++i) {
    reply->Write("piece ");
    client.Send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.ReadUntil("piece "), HasSubstr("piece "));
  }
  reply->Finish();
  client.ReadUntil("0\r\n\r\n");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.Read().body, "GET /next ");
}

TEST_F(HttpTlsTest, AClientThatEndsItsSideCountsAsGone) {
  Start();
  HttpClient client(port(), Ca());
  client.SendRequest("GET", "/hold");
  const auto reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  client.EndSending();  // close_notify; the socket stays open
  EXPECT_TRUE(handler_.WaitForDisconnect());
}

TEST_F(HttpTlsTest, AClientThatVanishesCountsAsGone) {
  Start();
  HttpClient client(port(), Ca());
  client.SendRequest("GET", "/hold");
  const auto reply = handler_.TakeHeld();
  ASSERT_NE(reply, nullptr);
  client.Close();
  EXPECT_TRUE(handler_.WaitForDisconnect());
}

TEST_F(HttpTlsTest, ARefusalCanBeReadThoughTheRequestGoesOn) {
  Start({.max_body_bytes = 1000});
  HttpClient client(port(), Ca());
  client.SendRequest("POST", "/echo", std::string(1'000'000, 'x'));
  EXPECT_EQ(client.Read().status, 413);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpTlsTest, TheLastAnswerOfAConnectionEndsItProperly) {
  Start();
  HttpClient client(port(), Ca());
  client.Send("GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /x ");
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(client.ended()) << "cut off, as anybody between could have done";
}

TEST_F(HttpTlsTest, PlainHttpIsToldSoAndCounted) {
  Start();
  HttpClient client(port());
  client.SendRequest("POST", "/echo", std::string(100'000, 'x'));
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("HTTPS"));
  WaitForFailures(1);
}

TEST_F(HttpTlsTest, WhatIsNeitherTlsNorHttpIsClosedAndCounted) {
  Start();
  HttpClient noise(port());
  noise.Send(std::string(2000, '\x16'));
  EXPECT_EQ(noise.Read().status, 0);
  HttpClient gone(port());
  gone.Send("\x16\x03\x01");
  gone.Close();
  WaitForFailures(2);
}

TEST_F(HttpTlsTest, AProbeThatSaysNothingIsNoFailure) {
  Start({.header_timeout = 100ms});
  HttpClient gone(port());
  gone.Close();
  HttpClient silent(port());
  EXPECT_TRUE(silent.AtEnd());
  server_->Shutdown(5s);
  EXPECT_EQ(failed_handshakes_.Value(), 0);
}

TEST_F(HttpTlsTest, AHandshakeHasTheTimeOfAHead) {
  Start({.header_timeout = 100ms});
  HttpClient silent(port());
  EXPECT_TRUE(silent.AtEnd());
  HttpClient slow(port());
  slow.Send("\x16\x03\x01");
  EXPECT_TRUE(slow.AtEnd());
  WaitForFailures(1);
}

TEST_F(HttpTlsTest, TheTimeOfAHandshakeIsTakenFromThatOfTheFirstHead) {
  Start({.header_timeout = 1s});
  HttpClient client(port());
  std::this_thread::sleep_for(700ms);
  client.StartTls(Ca());
  const auto begun = std::chrono::steady_clock::now();
  client.Send("GET / HT");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 900ms);
}

TEST_F(HttpTlsTest, TooManyConnectionsAreToldSoUnderTls) {
  Start({.max_connections = 1});
  HttpClient first(port(), Ca());
  first.SendRequest("GET", "/x");
  EXPECT_EQ(first.Read().status, 200);
  HttpClient second(port(), Ca());
  EXPECT_EQ(second.Read().status, 503);
}

TEST_F(HttpTlsTest, ShutdownClosesIdleConnectionsAndHandshakes) {
  Start();
  HttpClient idle(port(), Ca());
  idle.SendRequest("GET", "/x");
  EXPECT_EQ(idle.Read().status, 200);
  HttpClient silent(port());
  server_->Shutdown(5s);
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_TRUE(silent.AtEnd());
}

TEST_F(HttpTlsTest, AClientThatDoesNotTrustTheCertificateRefusesIt) {
  Start();
  CertificateAuthority().Issue(folder_ / "stranger");
  const HttpClient client(port(), folder_ / "stranger" / "ca.pem");
  EXPECT_THAT(client.refused(), HasSubstr("certificate verify failed"));
  WaitForFailures(1);
}

TEST_F(HttpTlsTest, RenewedFilesAreForNewConnections) {
  testing::Age(files_);
  FakeClock clock;
  BATON_ASSERT_OK_AND_ASSIGN(const auto context, TlsContext::Load(files_, clock));
  const auto first = context->Current();
  EXPECT_EQ(context->Current(), first);
  ca_.Issue(folder_);
  clock.Advance(2s);
  for (int i = 0; i < 500 && context->Current() == first; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_NE(context->Current(), first);
}

TEST_F(HttpTlsTest, FilesThatAreNotGoodAreNamedAtTheStart) {
  WriteAtOnce(files_.key, "not a key");
  EXPECT_THAT(HttpServer::Start({.listen = "127.0.0.1:0", .tls = files_}, &handler_, &connections_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(files_.key)));
}

}  // namespace
}  // namespace baton::router
