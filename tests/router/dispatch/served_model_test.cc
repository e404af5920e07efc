#include "router/dispatch/served_model.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kNeedle = BATON_SOURCE_DIR "/models/needle-17m";

// A model directory with the tokenizer of needle-17m.
class ServedModelTest : public ::testing::Test {
 protected:
  ServedModelTest() {
    directory_ = baton::testing::TestPath("served_model");
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    fs::copy(kNeedle / "tokenizer.json", directory_ / "tokenizer.json");
    Write("config.json", R"({"vocab_size": 1024})");
  }
  ~ServedModelTest() override { fs::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  absl::StatusOr<ServedModel> Load(const std::string& name = "") {
    return ServedModel::Load(directory_.string(), name);
  }

  fs::path directory_;
};

TEST_F(ServedModelTest, IsNamedAfterItsDirectoryUnlessToldOtherwise) {
  EXPECT_EQ(ServedModel::Load(kNeedle.string(), "")->name, "needle-17m");
  EXPECT_EQ(ServedModel::Load(kNeedle.string() + "/", "")->name, "needle-17m");
  EXPECT_EQ(Load("other")->name, "other");
}

TEST_F(ServedModelTest, TakesSamplingDefaultsFromGenerationConfig) {
  BATON_ASSERT_OK_AND_ASSIGN(const ServedModel plain, Load());
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.top_p, 1);
  Write("generation_config.json", R"({"temperature": 0.5, "top_p": 0.9, "top_k": 7})");
  BATON_ASSERT_OK_AND_ASSIGN(const ServedModel tuned, Load());
  EXPECT_FLOAT_EQ(tuned.temperature, 0.5);
  EXPECT_FLOAT_EQ(tuned.top_p, 0.9);
  EXPECT_EQ(tuned.top_k, 7);
  Write("generation_config.json", R"({"temperature": 0.5, "do_sample": false})");
  EXPECT_EQ(Load()->temperature, 0);
}

TEST_F(ServedModelTest, DefaultsThatNoRequestCouldAskForAreRefused) {
  for (const char* field : {"\"temperature\": -5", "\"temperature\": 2.5", "\"top_p\": 0",
                            "\"top_p\": 1.5", "\"top_k\": -2", "\"top_k\": 1e10"}) {
    Write("generation_config.json", std::string("{") + field + "}");
    const std::string name = std::string(field).substr(1, 5);
    EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("generation_config.json"), HasSubstr(name))))
        << field;
  }
}

TEST_F(ServedModelTest, ErrorsNameTheFileAndTheField) {
  Write("generation_config.json", R"({"temperature": "hot"})");
  EXPECT_THAT(Load(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("generation_config.json"), HasSubstr("temperature"))));
  fs::remove(directory_ / "generation_config.json");
  Write("config.json", "{}");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("config.json"), HasSubstr("vocab_size"))));
  Write("config.json", "[1");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("config.json")));
  fs::remove(directory_ / "config.json");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
  fs::remove(directory_ / "tokenizer.json");
  Write("generation_config.json", "[");
  EXPECT_THAT(Load().status().ToString(),
              AllOf(HasSubstr("3 errors:"), HasSubstr("/tokenizer.json"), HasSubstr("/config.json"),
                    HasSubstr("/generation_config.json")));
}

// Those could be opened, and then not be read.
TEST_F(ServedModelTest, DirectoriesInPlaceOfFilesAreErrorsThatNameThem) {
  for (const char* name :
       {"chat_prompts.json", "generation_config.json", "config.json", "tokenizer.json"}) {
    fs::remove(directory_ / name);
    fs::create_directory(directory_ / name);
    EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  }
}

TEST_F(ServedModelTest, WarnsOfMissingPromptTextsAndNamesWhatMakesThem) {
  const auto said = [this] {
    ::testing::internal::CaptureStdout();
    EXPECT_THAT(Load(), IsOk());
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(said(), AllOf(HasSubstr((directory_ / "chat_prompts.json").string()),
                            HasSubstr("baton import-prompts " + directory_.string())));
  fs::copy(kNeedle / "chat_prompts.json", directory_ / "chat_prompts.json");
  EXPECT_EQ(said(), "");
}

TEST_F(ServedModelTest, RefusesATokenizerThatExceedsTheModel) {
  Write("config.json", R"({"vocab_size": 100})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace baton::router
