#include "common/file_watch.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/test_path.h"

namespace baton {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() : folder_(testing::TestPath("file_watch")) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "old");
    fs::create_directories(folder_ / "new");
    std::ofstream(folder_ / "old" / "file") << "old";
    std::ofstream(folder_ / "new" / "file") << "newer";
  }
  ~FileWatchTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
  testing::FakeClock clock_;
};

TEST_F(FileWatchTest, AChangeOfAnyFileIsSaidWithinASecondUntilItIsTaken) {
  FileWatch watch({folder_ / "old" / "file", folder_ / "new" / "file"}, clock_);
  std::ofstream(folder_ / "new" / "file") << "newest";
  EXPECT_FALSE(watch.Changed()) << "looked a moment ago";
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
  EXPECT_FALSE(watch.Changed()) << "looked a moment ago";
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed()) << "not taken";
  watch.Taken();
  clock_.Advance(1s);
  EXPECT_FALSE(watch.Changed());
}

TEST_F(FileWatchTest, WhatComesAfterTheLookIsNotTaken) {
  FileWatch watch({folder_ / "old" / "file"}, clock_);
  std::ofstream(folder_ / "old" / "file") << "longer";
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
  std::ofstream(folder_ / "old" / "file") << "longer still";
  watch.Taken();
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
}

TEST_F(FileWatchTest, AnErrorIsToldOnceAndTriedUntilItIsGone) {
  FileWatch watch({folder_ / "old" / "file"}, clock_);
  absl::Status outcome = absl::DataLossError("no descriptors");
  int reads = 0;
  const auto look = [&] {
    clock_.Advance(1s);
    return watch.ReadIfChanged([&] {
      ++reads;
      return outcome;
    });
  };
  EXPECT_EQ(look(), std::nullopt) << "nothing has changed";
  std::ofstream(folder_ / "old" / "file") << "longer";
  EXPECT_EQ(look(), outcome);
  EXPECT_EQ(look(), std::nullopt) << "told";
  outcome = absl::DataLossError("another");
  EXPECT_EQ(look(), outcome);
  outcome = absl::OkStatus();
  EXPECT_EQ(look(), outcome);
  EXPECT_EQ(reads, 4);
  EXPECT_EQ(look(), std::nullopt) << "taken";
  EXPECT_EQ(reads, 4);
}

TEST_F(FileWatchTest, AFolderBehindALinkMayBeReplaced) {
  fs::create_directory_symlink(folder_ / "old", folder_ / "data");
  FileWatch watch({folder_ / "data" / "file"}, clock_);
  fs::create_directory_symlink(folder_ / "new", folder_ / "data.new");
  fs::rename(folder_ / "data.new", folder_ / "data");
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
}

TEST_F(FileWatchTest, AFileThatGoesAndComesHasChanged) {
  FileWatch watch({folder_ / "old" / "file"}, clock_);
  fs::remove(folder_ / "old" / "file");
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
  std::ofstream(folder_ / "old" / "file") << "back";
  clock_.Advance(1s);
  EXPECT_TRUE(watch.Changed());
}

}  // namespace
}  // namespace baton
