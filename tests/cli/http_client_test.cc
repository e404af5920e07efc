#include "cli/http_client.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio.hpp"
#include "cli/event_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

namespace asio = boost::asio;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(UrlTest, HostPortAndPathAreTakenApart) {
  BATON_ASSERT_OK_AND_ASSIGN(const Url url, ParseUrl("http://example.org:8000/api/"));
  EXPECT_EQ(url.host, "example.org");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.path, "/api");
  EXPECT_EQ(url.ToString(), "http://example.org:8000/api");
  BATON_ASSERT_OK_AND_ASSIGN(const Url ipv6, ParseUrl("[::1]"));
  EXPECT_EQ(ipv6.ToString(), "http://[::1]:80");
  EXPECT_EQ(ipv6.Authority(), "[::1]:80");
}

TEST(UrlTest, HttpsHasAPortOfItsOwn) {
  BATON_ASSERT_OK_AND_ASSIGN(const Url url, ParseUrl("https://example.org/api"));
  EXPECT_EQ(url.ToString(), "https://example.org:443/api");
  BATON_ASSERT_OK_AND_ASSIGN(const Url with_port, ParseUrl("https://[::1]:8000"));
  EXPECT_EQ(with_port.ToString(), "https://[::1]:8000");
}

TEST(UrlTest, WhatIsNoUrlIsNamed) {
  for (const char* text : {"ftp://a", "http://", "a:99999", "a:b"}) {
    EXPECT_THAT(ParseUrl(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
}

// Takes one request and answers with `answer`, whatever it is.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, const char* address = "127.0.0.1")
      : listener_(context_, {asio::ip::make_address(address), 0}),
        server_([this, answer = std::move(answer)] {
          asio::ip::tcp::socket client = listener_.accept();
          asio::read_until(client, asio::dynamic_buffer(request_), "\r\n\r\n");
          boost::system::error_code gone;
          asio::write(client, asio::buffer(answer), gone);
        }) {}

  Url url() const {
    const auto endpoint = listener_.local_endpoint();
    return {.host = endpoint.address().to_string(), .port = endpoint.port()};
  }
  // After the client has its answer.
  std::string Request() {
    server_.join();
    return request_;
  }

 private:
  asio::io_context context_;
  asio::ip::tcp::acceptor listener_;
  std::string request_;
  std::jthread server_;
};

std::string Answer(absl::string_view type, absl::string_view body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST(HttpClientTest, TheHeadNamesTheHostAndShowsTheKey) {
  OneAnswer server(Answer("text/plain", "yes"));
  HttpClient client(server.url(), {.authorization = "Bearer key"});
  BATON_ASSERT_OK_AND_ASSIGN(const HttpResponse response, client.Get("/a"));
  EXPECT_EQ(response.body, "yes");
  EXPECT_THAT(server.Request(),
              AllOf(HasSubstr("GET /a HTTP/1.1\r\n"), HasSubstr("Authorization: Bearer key\r\n"),
                    HasSubstr(absl::StrCat("Host: ", server.url().Authority(), "\r\n"))));
}

TEST(HttpClientTest, AnswersAndEventsHaveALargestSize) {
  const auto too_large = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("larger than 100 bytes"));
  OneAnswer whole(Answer("text/plain", std::string(101, 'x')));
  EXPECT_THAT(HttpClient(whole.url(), {.max_bytes = 100}).Get("/"), too_large);
  OneAnswer line(Answer("text/event-stream", std::string(101, 'x')));
  const OnEvent ignore = [](absl::string_view) { return true; };
  EXPECT_THAT(HttpClient(line.url(), {.max_bytes = 100}).StreamJson("/", "", ignore), too_large);
  std::string events;
  for (int i = 0; i < 10; ++i) absl::StrAppend(&events, "data: ", std::string(40, 'x'), "\n\n");
  OneAnswer several(Answer("text/event-stream", events));
  EXPECT_THAT(HttpClient(several.url(), {.max_bytes = 100}).StreamJson("/", "", ignore),
              baton::testing::IsOk());
}

TEST(HttpClientTest, AServerThatIsNotThereIsNamed) {
  HttpClient client(Url{.host = "127.0.0.1", .port = 1});
  EXPECT_THAT(client.Get("/health"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("http://127.0.0.1:1/health"), HasSubstr("refused"))));
}

TEST(HttpClientTest, ACallThatIsCalledOffEndsAsCancelled) {
  // Answers nobody: a name for documentation, reserved, that no route leads to.
  HttpClient client(
      Url{.host = "192.0.2.1", .port = 9},
      {.connect_timeout = std::chrono::seconds(20), .cancelled = [] { return true; }});
  EXPECT_THAT(client.Get("/"), StatusIs(absl::StatusCode::kCancelled));
}

TEST(HttpClientTest, StatusesBecomeErrorsWithWhatTheServerSaid) {
  const std::string body = R"({"error":{"message":"n is 2"}})";
  EXPECT_THAT(StatusOf({.status = 200}, "u"), baton::testing::IsOk());
  EXPECT_THAT(StatusOf({.status = 400, .body = body}, "u"),
              StatusIs(absl::StatusCode::kInvalidArgument, "u: HTTP 400: n is 2"));
  EXPECT_THAT(StatusOf({.status = 429}, "u"), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(StatusOf({.status = 503}, "u"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(StatusOf({.status = 500, .body = "<p>"}, "u"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("<p>")));
}

TEST(EventStreamTest, EventsComeOutHoweverTheBytesAreCut) {
  const std::string stream =
      ": comment\ndata: one\n\nid: 7\r\ndata:two\r\ndata: lines\r\n\r\ndata: x";
  for (size_t step = 1; step <= stream.size(); ++step) {
    EventStreamParser parser(stream.size());
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += step) {
      EXPECT_TRUE(parser.Feed(absl::string_view(stream).substr(at, step), [&](auto data) {
        events.emplace_back(data);
        return true;
      }));
    }
    EXPECT_THAT(events, ElementsAre("one", "two\nlines"));
  }
}

TEST(EventStreamTest, TheListenerEndsTheStream) {
  EventStreamParser parser(100);
  int events = 0;
  EXPECT_FALSE(parser.Feed("data: a\n\ndata: b\n\n", [&](absl::string_view) {
    ++events;
    return false;
  }));
  EXPECT_EQ(events, 1);
}

TEST(EventStreamTest, AnEventOfManyLinesIsNoLargerThanOneOfOne) {
  EventStreamParser parser(100);
  const auto listen = [](absl::string_view) { return true; };
  EXPECT_TRUE(parser.Feed("data: " + std::string(60, 'x') + "\n", listen));
  EXPECT_FALSE(parser.too_large());
  EXPECT_FALSE(parser.Feed("data: " + std::string(60, 'x') + "\n", listen));
  EXPECT_TRUE(parser.too_large());
}

}  // namespace
}  // namespace baton::cli
