#include "common/read_file.h"

#include <filesystem>
#include <fstream>

#include <sys/stat.h>

#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

std::string Written(const std::string& bytes) {
  const std::string path = baton::testing::TestPath("read_file");
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(ReadFileTest, GivesEveryByteOfAnyLength) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{65536}, size_t{65537}}) {
    std::string bytes(length, '\0');
    for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i * 31);
    const auto read = ReadFile(Written(bytes));
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(*read, bytes);
  }
}

TEST(ReadFileTest, ReadsNoMoreThanItMay) {
  const std::string path = Written(std::string(100'000, 'x'));
  EXPECT_THAT(ReadFile(path, 100'000), IsOk());
  EXPECT_THAT(ReadFile(path, 99'999),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
  EXPECT_THAT(ReadFile("/dev/zero", 1000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 1000 bytes")));
}

TEST(ReadFileTest, NamesAFileThatIsMissing) {
  EXPECT_THAT(ReadFile("/nowhere/tokenizer.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/tokenizer.json")));
}

// Opens, and then fails to be read: no exception may come out of that.
TEST(ReadFileTest, NamesADirectory) {
  EXPECT_THAT(ReadFile(::testing::TempDir()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(::testing::TempDir())));
}

// It would be waited for, and read, for ever.
TEST(ReadFileTest, WaitsForNothingThatIsNoRegularFile) {
  const std::string path = Written("bytes");
  EXPECT_THAT(ReadRegularFile(path), baton::testing::IsOkAndHolds("bytes"));
  EXPECT_THAT(ReadRegularFile(path, 4), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadRegularFile("/nowhere/config.json"), StatusIs(absl::StatusCode::kNotFound));
  const std::string pipe = baton::testing::TestPath("read_file_pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& other : {pipe, std::string("/dev/zero"), ::testing::TempDir()}) {
    EXPECT_THAT(ReadRegularFile(other), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 HasSubstr(other + " is not a regular file")));
  }
}

}  // namespace
}  // namespace baton
