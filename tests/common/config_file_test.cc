#include "common/config_file.h"

#include <filesystem>
#include <fstream>

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton {
namespace {

using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ConfigFileTest : public ::testing::Test {
 protected:
  ~ConfigFileTest() override { std::filesystem::remove_all(path_); }

  const std::string path_ = testing::TestPath("config_file").string();
};

TEST_F(ConfigFileTest, ARegularFileIsRead) {
  std::ofstream(path_) << "a: 1\n";
  EXPECT_THAT(ReadConfigFile(path_), IsOkAndHolds("a: 1\n"));
}

TEST_F(ConfigFileTest, WhatAShellHasOpenedIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "a: 1\n", 5), 5);
  close(ends[1]);
  EXPECT_THAT(ReadConfigFile(absl::StrCat("/dev/fd/", ends[0])), IsOkAndHolds("a: 1\n"));
  close(ends[0]);
}

TEST_F(ConfigFileTest, AFifoThatNobodyMayEverWriteIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadConfigFile(path_), StatusIs(kInvalid, path_ + " is no regular file"));
}

TEST_F(ConfigFileTest, WhatHoldsNoConfigurationIsRefusedByName) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(ReadConfigFile(path_), StatusIs(kInvalid, path_ + " is a directory"));
  EXPECT_THAT(ReadConfigFile(path_ + "/x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_ + "/x")));
  std::ofstream(path_ + "/huge") << std::string((1 << 20) + 1, ' ');
  EXPECT_THAT(ReadConfigFile(path_ + "/huge"),
              StatusIs(kInvalid, path_ + "/huge holds more than 1048576 bytes"));
}

TEST_F(ConfigFileTest, ASecondDocumentIsRefusedWhereItBegins) {
  EXPECT_THAT(
      ParseConfigText("a: 1\n---\nb: 2\n", "f"),
      StatusIs(kInvalid, "f:3: a second document begins here; everything must stand in one"));
  EXPECT_THAT(ParseConfigText("---\n---\nb: 2\n", "f"), StatusIs(kInvalid, HasSubstr("f:3: ")));
  for (const char* one : {"a: 1\n", "---\na: 1\n", "a: 1\n---\n", "a: 1\n...\n", "--- {a: 1}\n"}) {
    const absl::StatusOr<YAML::Node> document = ParseConfigText(one, "f");
    ASSERT_TRUE(document.ok()) << one << document.status();
    EXPECT_EQ((*document)["a"].Scalar(), "1") << one;
  }
}

TEST_F(ConfigFileTest, ATextThatSaysNothingIsNull) {
  for (const char* nothing : {"", "# only a comment\n", "---\n"}) {
    const absl::StatusOr<YAML::Node> document = ParseConfigText(nothing, "f");
    ASSERT_TRUE(document.ok()) << nothing << document.status();
    EXPECT_TRUE(document->IsNull()) << nothing;
  }
}

TEST_F(ConfigFileTest, BrokenYamlIsAnErrorWithItsLineHoweverDeep) {
  EXPECT_THAT(ParseConfigText("a: 1\nb: [a, b\n", "f"), StatusIs(kInvalid, HasSubstr("f:")));
  EXPECT_THAT(ParseConfigText(std::string(1 << 20, '['), "f"), StatusIs(kInvalid, HasSubstr("f:")));
}

}  // namespace
}  // namespace baton
