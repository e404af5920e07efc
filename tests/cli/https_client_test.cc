#include <filesystem>

#include "cli/http_client.h"
#include "gmock/gmock.h"
#include "router/http/server.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::baton::testing::CertificateAuthority;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers with the request's body.
struct Echo final : router::HttpHandler {
  void Handle(router::HttpRequest request, std::shared_ptr<router::HttpReply> reply) override {
    reply->Respond({.body = std::move(request.body)});
  }
  router::HttpResponse Refuse(const router::HttpRequest&, int status,
                              const std::string& message) override {
    return {.status = status, .body = message};
  }
};

class HttpsClientTest : public ::testing::Test {
 protected:
  ~HttpsClientTest() override { fs::remove_all(folder_); }

  void Serve(const CertificateAuthority::Wanted& wanted) {
    tls::CertificateFiles files = ca_.Issue(folder_, wanted);
    files.ca.clear();
    BATON_ASSERT_OK_AND_ASSIGN(
        server_,
        router::HttpServer::Start({.listen = "127.0.0.1:0", .tls = files}, &echo_, &connections_));
  }
  HttpClient Client(HttpOptions options, const std::string& host = "127.0.0.1") {
    return HttpClient({.host = host, .port = server_->port(), .https = true}, std::move(options));
  }

  const fs::path folder_ = testing::TestPath("https_client");
  CertificateAuthority ca_;
  Echo echo_;
  prometheus::Gauge connections_;
  std::unique_ptr<router::HttpServer> server_;
};

TEST_F(HttpsClientTest, AsksAServerThatIsTrusted) {
  Serve({});
  const auto no_events = [](absl::string_view) {
    ADD_FAILURE() << "the server only echoes";
    return true;
  };
  for (const char* host : {"127.0.0.1", "localhost"}) {
    HttpClient client = Client({.ca_file = folder_ / "ca.pem"}, host);
    for (const size_t size : {0, 10, 100'000}) {  // on one connection
      const std::string body(size, 'x');
      BATON_ASSERT_OK_AND_ASSIGN(const HttpResponse response,
                                 client.StreamJson("/", body, no_events));
      EXPECT_EQ(response.body, body);
    }
  }
}

TEST_F(HttpsClientTest, ReopensAConnectionThatTheServerHasClosed) {
  Serve({});
  HttpClient client = Client({.ca_file = folder_ / "ca.pem"});
  EXPECT_THAT(client.Get("/"), IsOk());
  server_->Drain();  // each answer is the last of its connection
  EXPECT_THAT(client.Get("/"), IsOk());
  EXPECT_THAT(client.Get("/"), IsOk());
}

TEST_F(HttpsClientTest, RefusesAServerThatIsNotTrusted) {
  Serve({});
  CertificateAuthority().Issue(folder_ / "stranger");
  const std::string stranger = folder_ / "stranger" / "ca.pem";
  for (const std::string& ca : {stranger, std::string()}) {
    EXPECT_THAT(Client({.ca_file = ca}).Get("/"),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("https://127.0.0.1"), HasSubstr("issuer certificate"))));
  }
}

TEST_F(HttpsClientTest, RefusesACertificateForSomebodyElse) {
  Serve({.names = "DNS:example.org,IP:127.0.0.2"});
  const std::string ca = folder_ / "ca.pem";
  EXPECT_THAT(Client({.ca_file = ca}).Get("/"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("IP address mismatch")));
  EXPECT_THAT(Client({.ca_file = ca}, "localhost").Get("/"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ostname mismatch")));
  EXPECT_THAT(Client({.ca_file = ca, .any_name = true}).Get("/"), IsOk());
}

TEST_F(HttpsClientTest, TheVeryCertificateCanBeTrusted) {
  Serve({});
  EXPECT_THAT(Client({.ca_file = folder_ / "cert.pem"}).Get("/"), IsOk());
}

TEST_F(HttpsClientTest, AFileWithoutCertificatesIsNamed) {
  Serve({});
  HttpClient client = Client({.ca_file = folder_ / "nowhere"});
  for (int i = 0; i < 2; ++i) {  // the second time not on the connection of the first
    EXPECT_THAT(client.Get("/"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nowhere")));
  }
}

TEST_F(HttpsClientTest, AHostThatNoCertificateCanNameIsNotAsked) {
  Serve({});
  HttpClient client = Client({.ca_file = folder_ / "ca.pem"}, "");  // found at the loopback
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(client.Get("/"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the host ''")));
  }
}

TEST_F(HttpsClientTest, PlainTextOfAnHttpsServerSaysWhatItIs) {
  Serve({});
  HttpClient client({.host = "127.0.0.1", .port = server_->port()});
  BATON_ASSERT_OK_AND_ASSIGN(const HttpResponse response, client.Get("/"));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("HTTPS"));
}

}  // namespace
}  // namespace baton::cli
