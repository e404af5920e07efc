#include "cli/files.h"

#include <cstdlib>

#include "common/read_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using baton::testing::IsOk;
using baton::testing::IsOkAndHolds;
using baton::testing::StatusIs;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BATON_ASSERT_OK_AND_ASSIGN(folder_, MakeTemporaryFolder("baton-files-test"));
  }
  ~FilesTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(FilesTest, TemporaryFoldersAreNewAndNamed) {
  EXPECT_TRUE(fs::is_directory(folder_));
  EXPECT_THAT(folder_.filename().string(), HasSubstr("baton-files-test-"));
  setenv("TMPDIR", "/nonexistent", 1);
  const absl::Status status = MakeTemporaryFolder("baton").status();
  unsetenv("TMPDIR");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("temporary")));
}

TEST_F(FilesTest, ProgramsAreBesideOrInBin) {
  fs::create_directories(folder_ / "lib");
  fs::create_directories(folder_ / "bin");
  EXPECT_THAT(WriteFile(folder_ / "bin/baton-router", ""), IsOk());
  EXPECT_TRUE(fs::equivalent(ProgramIn(folder_ / "lib", "router"), folder_ / "bin/baton-router"));
  EXPECT_THAT(WriteFile(folder_ / "lib/baton-router", ""), IsOk());
  EXPECT_EQ(ProgramIn(folder_ / "lib", "router"), folder_ / "lib/baton-router");
  EXPECT_EQ(ProgramIn(folder_ / "lib", "decode"), folder_ / "lib/baton-decode")
      << "as an error names it";
}

TEST_F(FilesTest, WhatIsWrittenReplacesWhatWasThere) {
  const fs::path file = folder_ / "file";
  EXPECT_THAT(WriteFile(file, "a long text"), IsOk());
  EXPECT_THAT(WriteFile(file, "short"), IsOk());
  EXPECT_THAT(ReadFile(file), IsOkAndHolds("short"));
  EXPECT_THAT(WriteFile(folder_ / "no/file", ""),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no/file")));
}

}  // namespace
}  // namespace baton::cli
