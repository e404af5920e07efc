#include "cli/up/cluster_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ClusterFileTest, CountsAndFlagsOfEachRoleAreRead) {
  ClusterOptions options;
  FlagPlaces places;
  ASSERT_THAT(ReadClusterFile("model_dir: models/m\nranks: 2\ndevices: [0, 3]\n"
                              "workers: {device: cpu, pages: 64}\n"
                              "prefill:\n  count: 2\n  chunk_tokens: 512\n"
                              "decode: {count: 3}\n"
                              "router: {listen: \"127.0.0.1:0\", policy: round-robin}\n",
                              "c.yaml", options, places),
              IsOk());
  EXPECT_EQ(options.model_dir, "models/m");
  EXPECT_EQ(options.ranks, 2);
  EXPECT_THAT(options.devices, ElementsAre("0", "3"));
  EXPECT_EQ(options.prefill, 2);
  EXPECT_EQ(options.decode, 3);
  EXPECT_THAT(options.worker_flags, ElementsAre("--device=cpu", "--pages=64"));
  EXPECT_THAT(options.prefill_flags, ElementsAre("--chunk-tokens=512"));
  EXPECT_THAT(options.router_flags, ElementsAre("--listen=127.0.0.1:0", "--policy=round-robin"));
}

TEST(ClusterFileTest, ListsBecomeOneFlag) {
  ClusterOptions options;
  FlagPlaces places;
  ASSERT_THAT(ReadClusterFile("workers: {transports: [shm, grpc]}", "c", options, places), IsOk());
  EXPECT_THAT(options.worker_flags, ElementsAre("--transports=shm,grpc"));
}

TEST(ClusterFileTest, ErrorsNameFileAndLine) {
  const auto error = [](const char* text) {
    ClusterOptions options;
    FlagPlaces places;
    return ReadClusterFile(text, "c.yaml", options, places);
  };
  const auto refused = [](const char* said) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(said));
  };
  EXPECT_THAT(error("model_dir: m\nprefil: {}"),
              refused("c.yaml:2: unknown key prefil, did you mean prefill?"));
  EXPECT_THAT(error("model: m"),
              refused("c.yaml:1: unknown key model; there are model_dir, ranks"));
  EXPECT_THAT(error("decode: {count: some}"), refused("c.yaml:1: decode.count"));
  EXPECT_THAT(error("decode: {count: -1}"), refused("decode.count"));
  EXPECT_THAT(error("ranks: 0"), refused("ranks is not a whole number from 1"));
  EXPECT_THAT(error("model_dir: m\n---\nprefill: {count: 2}"),
              refused("c.yaml:3: a second document"));
  EXPECT_THAT(error("workers: 3"), refused("workers is no map"));
  EXPECT_THAT(error("workers: {pages: {a: 1}}"), refused("pages is no value"));
  EXPECT_THAT(error("a: [\n"), refused("c.yaml:"));
  EXPECT_THAT(error(""), refused("no map"));
}

TEST(ClusterFileTest, WhatAProgramSaysOfAFlagGetsItsPlaceInTheFile) {
  ClusterOptions options;
  FlagPlaces places;
  ASSERT_THAT(ReadClusterFile("workers: {page: 3}\nprefill:\n  pages: 4\ndecode: {pages: many}\n",
                              "c.yaml", options, places),
              IsOk());
  EXPECT_THAT(WithPlaces(absl::UnavailableError("--pages: \"many\" is not accepted"), places),
              StatusIs(absl::StatusCode::kUnavailable,
                       EndsWith("accepted\n--pages is from c.yaml:3\n--pages is from c.yaml:4")));
  EXPECT_THAT(WithPlaces(absl::UnavailableError("unknown flag --page, ..."), places),
              StatusIs(absl::StatusCode::kUnavailable, EndsWith("\n--page is from c.yaml:1")));
  EXPECT_THAT(WithPlaces(absl::OkStatus(), places), IsOk());
}

}  // namespace
}  // namespace baton::cli
