#include "cli/http_client.h"

#include <vector>

#include "cli/event_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

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
}

TEST(UrlTest, WhatIsNoUrlIsNamed) {
  for (const char* text : {"https://a", "ftp://a", "http://", "a:99999", "a:b"}) {
    EXPECT_THAT(ParseUrl(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
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
    EventStreamParser parser;
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
  EventStreamParser parser;
  int events = 0;
  EXPECT_FALSE(parser.Feed("data: a\n\ndata: b\n\n", [&](absl::string_view) {
    ++events;
    return false;
  }));
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace baton::cli
