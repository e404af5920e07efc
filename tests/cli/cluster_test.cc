#include "cli/cluster.h"

#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/asio.hpp"
#include "cli/files.h"
#include "common/read_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Scripts in place of the programs, and this test in place of a router that is healthy.
class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest()
      : listener_(context_, {asio::ip::address_v4::loopback(), 0}), health_([this] {
          asio::ip::tcp::socket client = listener_.accept();
          boost::system::error_code error;
          std::string request;
          asio::read_until(client, asio::dynamic_buffer(request), "\r\n\r\n", error);
          asio::write(client, asio::buffer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), error);
        }) {}

  void SetUp() override {
    BATON_ASSERT_OK_AND_ASSIGN(folder_, MakeTemporaryFolder("baton-cluster-test"));
    options_.binaries = options_.log_dir = folder_;
    options_.model_dir = "model";
    options_.start_timeout = std::chrono::seconds(10);
    for (const char* role : {"prefill", "decode"}) Program(role, "listening grpc=127.0.0.1:1");
    Program("router", absl::StrCat("listening http=127.0.0.1:", listener_.local_endpoint().port()));
  }
  ~ClusterTest() override {
    asio::io_context context;  // where nobody has asked for health
    asio::ip::tcp::socket last(context);
    boost::system::error_code ignored;
    last.connect(listener_.local_endpoint(), ignored);
    last.close(ignored);
    health_.join();
    fs::remove_all(folder_);
  }

  // Says `line` and then does not heed SIGTERM.
  void Program(const std::string& role, const std::string& line, const std::string& before = "") {
    const fs::path path = folder_ / ("baton-" + role);
    ASSERT_THAT(WriteFile(path, absl::StrCat("#!/bin/sh\ntrap '' TERM\n", before, "\necho ", line,
                                             "\nexec sleep 60\n")),
                IsOk());
    fs::permissions(path, fs::perms::owner_all);
  }

  ClusterOptions options_;
  fs::path folder_;
  asio::io_context context_;
  asio::ip::tcp::acceptor listener_;
  std::jthread health_;
};

TEST_F(ClusterTest, AllOfItStopsWithinOneTimeout) {
  options_.stop_timeout = std::chrono::seconds(1);
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options_));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(cluster->Stop(),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("router had not stopped"), HasSubstr("prefill-0 had not"),
                             HasSubstr("decode-0 had not"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
}

TEST_F(ClusterTest, ServesAsLongAsEachRoleHasAWholeWorkerAndTheRouterRuns) {
  options_.decode = 2;
  options_.ranks = 2;
  options_.stop_timeout = std::chrono::seconds(0);
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options_));
  const auto kill = [&](const std::string& name) {
    for (const auto& process : cluster->processes()) {
      if (process->spec().name == name) process->Kill();
    }
    return cluster->Serves();
  };
  EXPECT_TRUE(cluster->Serves());
  EXPECT_TRUE(kill("decode-0-rank-1"));
  EXPECT_FALSE(kill("decode-1-rank-0")) << "of each decode worker a rank is left";
}

TEST_F(ClusterTest, WhereTheRouterCannotListenNothingStarts) {
  options_.router_flags = {
      absl::StrCat("--metrics-listen=127.0.0.1:", listener_.local_endpoint().port())};
  EXPECT_THAT(Cluster::Start(options_),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(options_.router_flags[0]), HasSubstr("already in use"))));
  EXPECT_FALSE(fs::exists(folder_ / "prefill-0.log"));
  options_.router_flags = {"--listen=here"};
  EXPECT_THAT(Cluster::Start(options_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--listen")));
}

// Rank 0 finds its address taken `times` times, and everybody writes down where it was to meet.
std::string LosingRank(const fs::path& folder, int times) {
  return absl::StrCat("echo \"$@\" >> ", folder.string(),
                      "/seen; case \"$*\" in *rank=0*) "
                      "if [ $(grep -c rank=0 ",
                      folder.string(), "/seen) -le ", times,
                      " ]; then echo 'listen: Address already in use' >&2; exit 1; fi;; esac");
}

TEST_F(ClusterTest, RanksWhoseAddressWasTakenMeetAtAnother) {
  options_.prefill = 0;
  options_.ranks = 2;
  Program("decode", "listening grpc=127.0.0.1:1", LosingRank(folder_, 1));
  BATON_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options_));
  std::set<std::string> meetings;
  for (const auto& process : cluster->processes()) {
    for (const std::string& flag : process->spec().flags) {
      if (flag.starts_with("--expert-parallel-address=")) meetings.insert(flag);
    }
  }
  EXPECT_EQ(meetings.size(), 1u) << "all ranks at the same";
  BATON_ASSERT_OK_AND_ASSIGN(const std::string seen, ReadFile(folder_ / "seen"));
  const std::vector<std::string> starts = absl::StrSplit(seen, "rank=0");
  EXPECT_EQ(starts.size(), 3u) << "rank 0 started twice: " << seen;
  EXPECT_THAT(seen, HasSubstr(*meetings.begin()));
}

// Which shows when it is asked for its health, as the file holds no certificate.
TEST_F(ClusterTest, ARouterIsAskedUnderTlsHoweverItsCertificateIsGiven) {
  ASSERT_THAT(WriteFile(folder_ / "key.pem", "none"), IsOk());
  const std::string file = folder_ / "key.pem";
  const std::string config = folder_ / "router.yaml";
  ASSERT_THAT(WriteFile(config, "api_tls_cert_file: " + file + "\n"), IsOk());
  const std::vector<std::string> ways[] = {{"--api-tls-cert-file=" + file},
                                           {"--api-tls-cert-file", file},
                                           {"--config=" + config},
                                           {"--config", config}};
  for (const std::vector<std::string>& flags : ways) {
    options_.router_flags = flags;
    EXPECT_THAT(Cluster::Start(options_), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("holds no certificate in PEM")));
  }
}

TEST_F(ClusterTest, RanksWhoseAddressIsTakenAgainAreAnError) {
  options_.prefill = 0;
  options_.ranks = 2;
  Program("decode", "listening grpc=127.0.0.1:1", LosingRank(folder_, 2));
  EXPECT_THAT(Cluster::Start(options_),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("decode-0-rank-0"), HasSubstr("Address already in use"))));
}

}  // namespace
}  // namespace baton::cli
