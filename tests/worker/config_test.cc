#include "worker/config.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::worker {
namespace {

namespace fs = std::filesystem;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kModel = BATON_SOURCE_DIR "/models/needle-17m";

absl::Status Inspect(const WorkerConfig& config) {
  ErrorList errors;
  InspectConfig(config, errors);
  return errors.ToStatus();
}

absl::Status Parse(std::vector<const char*> flags) {
  WorkerConfig config;
  ConfigParser parser("baton-prefill", "");
  BindWorkerConfig(config, parser);
  flags.insert(flags.begin(), {"baton-prefill", "--model-dir=m"});
  return parser.Parse(static_cast<int>(flags.size()), flags.data()).status();
}

// A copy of the small model whose files may be spoilt.
class WorkerInspectionTest : public ::testing::Test {
 protected:
  WorkerInspectionTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const auto& file : fs::directory_iterator(kModel)) {
      if (file.is_regular_file()) fs::create_symlink(file.path(), folder_ / file.path().filename());
    }
    config_.engine.model_dir = folder_;
  }
  ~WorkerInspectionTest() override { fs::remove_all(folder_); }

  void Replace(const std::string& name, const std::string& text) {
    fs::remove(folder_ / name);
    std::ofstream(folder_ / name) << text;
  }

  const fs::path folder_ = testing::TestPath("inspected_model");
  WorkerConfig config_;
};

TEST_F(WorkerInspectionTest, AWholeModelIsFine) { EXPECT_THAT(Inspect(config_), IsOk()); }

TEST_F(WorkerInspectionTest, EveryShardThatIsMissingOrBrokenIsNamed) {
  fs::remove(folder_ / "model-00001-of-00002.safetensors");
  Replace("model-00002-of-00002.safetensors", "cut off");
  EXPECT_THAT(Inspect(config_),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("model-00001-of-00002.safetensors: No such file"),
                             HasSubstr("model-00002-of-00002.safetensors"))));
}

TEST_F(WorkerInspectionTest, WhatHasNothingToDoWithEachOtherIsToldTogether) {
  Replace("config.json", "{");
  config_.tls.files.certificate = "/nonexistent/tls.crt";
  config_.transports = {"rdma"};
  config_.faults.fault_plan = "/nonexistent/plan";
  config_.engine.expert_parallel_size = 2;
  config_.engine.expert_parallel_rank = 2;
  EXPECT_THAT(Inspect(config_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("6 errors:"), HasSubstr("give all three or none"),
                             HasSubstr("transports: \"rdma\" is unknown"),
                             HasSubstr("--allow-faults"), HasSubstr("config.json: not valid JSON"),
                             HasSubstr("expert_parallel_rank is 2"),
                             HasSubstr("expert_parallel_address is missing"))));
}

TEST_F(WorkerInspectionTest, OptionsThatDoNotFitTheModelAreNamed) {
  config_.engine.expert_parallel_size = 64;
  config_.engine.expert_parallel_address = "a:1";
  config_.engine.num_layers = 1;
  EXPECT_THAT(Inspect(config_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_layers is 1")));
  config_.engine.num_layers = 0;
  EXPECT_THAT(Inspect(config_), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("expert_parallel_size is 64")));
}

TEST(WorkerConfigTest, ANameIsHarmlessWhereverItIsShown) {
  for (const char* name : {"--name=prefill-0", "--name=decode-1@gpu7.example", "--name="}) {
    EXPECT_THAT(Parse({name}), IsOk()) << name;
  }
  for (const char* name : {"--name=a b", "--name=a\033[2J", "--name=a\"", "--name=\xc3\xa4"}) {
    EXPECT_THAT(Parse({name}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--name: ")))
        << name;
  }
}

TEST(WorkerConfigTest, AnAddressThatOthersCannotReachIsNotAdvertised) {
  EXPECT_THAT(Parse({"--listen=localhost"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host:port")));
  for (const char* any : {"--listen=0.0.0.0:0", "--listen=[::]:7000"}) {
    EXPECT_THAT(Parse({any}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set advertise")));
    EXPECT_THAT(Parse({any, "--advertise=worker.example:7002"}), IsOk());
  }
  for (const char* unreachable :
       {"--advertise=0.0.0.0:7002", "--advertise=[::]:7002", "--advertise=worker.example:0"}) {
    EXPECT_THAT(Parse({unreachable}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nobody can connect to")));
  }
}

TEST(WorkerConfigTest, AnAddressOfItsOwnIsGivenOnce) {
  EXPECT_THAT(Parse({"--listen=127.0.0.1:7", "--metrics-listen=127.0.0.1:7"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("listen is 127.0.0.1:7 and metrics-listen is 127.0.0.1:7")));
  const auto meeting_at_listen = [](const char* rank) {
    return Parse({"--listen=127.0.0.1:7", "--expert-parallel-size=2",
                  "--expert-parallel-address=127.0.0.1:7", rank});
  };
  EXPECT_THAT(meeting_at_listen("--expert-parallel-rank=0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expert-parallel-address")));
  EXPECT_THAT(meeting_at_listen("--expert-parallel-rank=1"), IsOk()) << "rank 0 listens there";
}

}  // namespace
}  // namespace baton::worker
