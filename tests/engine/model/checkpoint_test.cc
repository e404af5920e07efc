#include "engine/model/checkpoint.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

auto IsInvalid(const std::string& what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

// A model directory whose files a test may change.
class CheckpointTest : public ::testing::Test {
 protected:
  void WriteConfig(const Json& config) const { dir_.Write("config.json", config.dump()); }
  void WriteSingleFile(const TestTensors& tensors) const {
    WriteConfig(Config());
    dir_.Write("model.safetensors", BuildSafetensors(tensors));
  }
  // config.json and the shards as links; the index is the test's.
  void LinkShards() const {
    WriteConfig(Config());
    for (const auto& entry : std::filesystem::directory_iterator(kModelDir)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::filesystem::create_symlink(entry.path(), dir_.File(entry.path().filename()));
    }
  }
  void WriteIndex(const Json& index) const {
    dir_.Write("model.safetensors.index.json", index.dump());
  }
  static Json Config() { return Json::parse(ReadFile(kModelDir + "/config.json")); }
  static Json Index() { return Json::parse(ReadFile(kModelDir + "/model.safetensors.index.json")); }
  absl::StatusOr<Checkpoint> Open() const { return Checkpoint::Open(dir_.path()); }

  TempDir dir_;
};

TEST_F(CheckpointTest, OpensTheShardedModel) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(kModelDir));
  EXPECT_EQ(checkpoint.tensors().size(), 673u);
  EXPECT_EQ(checkpoint.tensor("embed.weight").type, TensorType::kBf16);
}

TEST_F(CheckpointTest, FollowsLinksToShards) {
  LinkShards();
  WriteIndex(Index());
  EXPECT_THAT(Open(), IsOk());
}

TEST_F(CheckpointTest, OpensASingleFileWithoutAnIndex) {
  WriteSingleFile(ModelTensors());
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_EQ(checkpoint.tensors().size(), 673u);
}

TEST_F(CheckpointTest, HashIgnoresShardingAndKeyOrderButNotContents) {
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint sharded, Checkpoint::Open(kModelDir));
  EXPECT_EQ(sharded.Hash().size(), 16u);

  TestTensors tensors = ModelTensors();
  WriteSingleFile(tensors);
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint single, Open());
  EXPECT_EQ(single.Hash(), sharded.Hash());

  tensors["layers.3.attn.wq_a.weight"].bytes[5] ^= 1;
  WriteSingleFile(tensors);
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint retrained, Open());
  EXPECT_NE(retrained.Hash(), sharded.Hash());

  Json config = Config();
  config["routed_scaling_factor"] = 2.5;
  WriteSingleFile(ModelTensors());
  WriteConfig(config);
  BATON_ASSERT_OK_AND_ASSIGN(const Checkpoint rescaled, Open());
  EXPECT_NE(rescaled.Hash(), sharded.Hash());
}

TEST_F(CheckpointTest, NamesFilesThatAreMissing) {
  EXPECT_THAT(Checkpoint::Open(dir_.File("nowhere")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
  WriteConfig(Config());
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.safetensors")));
  WriteIndex(Index());
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("model-00001-of-00002"),
                                                          HasSubstr("model-00002-of-00002"))));
}

TEST_F(CheckpointTest, NamesTheFileOfABadConfig) {
  WriteSingleFile({});
  dir_.Write("config.json", "{");
  EXPECT_THAT(Open(), IsInvalid("/config.json: not valid JSON"));
}

TEST_F(CheckpointTest, ListsMissingExtraMisshapenAndMistypedTensorsTogether) {
  TestTensors tensors = ModelTensors();
  tensors.erase("layers.1.attn.q_norm.weight");
  tensors["layers.1.attn.extra"] = {"I8", {1}, "x"};
  tensors["norm.weight"] = {"BF16", {255}, std::string(510, '\0')};
  tensors["hc_head_base"] = {"BF16", {4}, std::string(8, '\0')};
  WriteSingleFile(tensors);
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("layers.1.attn.q_norm.weight is missing (BF16 [128])"),
                             HasSubstr("layers.1.attn.extra is not part of this model"),
                             HasSubstr("norm.weight is BF16 [255], must be BF16 [256]"),
                             HasSubstr("hc_head_base is BF16 [4], must be F32 [4]"))));
}

TEST_F(CheckpointTest, ListOfProblemsIsBounded) {
  WriteSingleFile({});
  const absl::StatusOr<Checkpoint> checkpoint = Open();
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr("and 653 more"));
  EXPECT_LT(checkpoint.status().message().size(), 3000u);
}

TEST_F(CheckpointTest, ExpertsAreFp4OrFp8ThroughoutNotMixed) {
  TestTensors tensors = ModelTensors();
  tensors["layers.4.ffn.experts.3.w1.weight"] = {
      "F8_E4M3", {128, 256}, std::string(128 * 256, '\0')};
  WriteSingleFile(tensors);
  EXPECT_THAT(Open(), IsInvalid("layers.4.ffn.experts.3.w1.weight is F8_E4M3 [128, 256], must "
                                "be I8 [128, 128]"));
}

TEST_F(CheckpointTest, ConfigDecidesWhichTensorsThereAre) {
  WriteSingleFile(ModelTensors());
  Json config = Config();
  config["num_nextn_predict_layers"] = 0;
  config["compress_ratios"] = {0, 0, 4, 128, 4, 128, 4};
  WriteConfig(config);
  EXPECT_THAT(Open(), IsInvalid("mtp.0.attn.attn_sink is not part of this model"));
}

TEST_F(CheckpointTest, IndexMayOnlyNameFilesOfTheDirectory) {
  LinkShards();
  for (const std::string shard : {"../x.safetensors", "/etc/passwd", "..", "", "a/b", "a\\b"}) {
    Json index = Index();
    index["weight_map"]["norm.weight"] = shard;
    WriteIndex(index);
    EXPECT_THAT(Open(), IsInvalid("weight_map[norm.weight] must name a file of the directory"))
        << shard;
  }
  Json index = Index();
  index["weight_map"]["norm.weight"] = 3;
  WriteIndex(index);
  EXPECT_THAT(Open(), IsInvalid("weight_map[norm.weight]"));
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  LinkShards();
  Json index = Index();
  const std::string shard = index["weight_map"]["norm.weight"];
  index["weight_map"].erase("norm.weight");
  WriteIndex(index);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr(shard), HasSubstr("norm.weight is not listed"))));
  index["weight_map"]["norm.weight"] = shard;
  index["weight_map"]["ghost"] = shard;
  WriteIndex(index);
  EXPECT_THAT(Open(), IsInvalid("ghost is missing"));
}

TEST_F(CheckpointTest, MalformedIndexIsRefused) {
  LinkShards();
  dir_.Write("model.safetensors.index.json", "{\"weight_map\":");
  EXPECT_THAT(Open(), IsInvalid("model.safetensors.index.json: not valid JSON"));
  WriteIndex(Json::array());
  EXPECT_THAT(Open(), IsInvalid("needs weight_map"));
  WriteIndex({{"weight_map", Json::object()}});
  EXPECT_THAT(Open(), IsInvalid("needs weight_map"));
  dir_.Write("model.safetensors.index.json",
             R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})");
  EXPECT_THAT(Open(), IsInvalid("\"a\" occurs twice"));
}

TEST_F(CheckpointTest, TruncatedShardIsNamed) {
  LinkShards();
  WriteIndex(Index());
  const std::string name = "model-00002-of-00002.safetensors";
  std::string bytes = ReadFile(kModelDir + "/" + name);
  bytes.resize(bytes.size() - 1000);
  std::filesystem::remove(dir_.File(name));
  dir_.Write(name, bytes);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr(name), HasSubstr("truncated"))));
}

}  // namespace
}  // namespace baton::engine
