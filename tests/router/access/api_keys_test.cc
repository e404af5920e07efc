#include "router/access/api_keys.h"

#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <sys/stat.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::router {
namespace {

using ::baton::testing::FakeClock;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFirst[] = "sk-first-0123456789";
constexpr char kSecond[] = "sk-second-0123456789";

class ApiKeysTest : public ::testing::Test {
 protected:
  ApiKeysTest() : path_(baton::testing::TestPath("api_keys")) {}
  ~ApiKeysTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) { std::ofstream(path_) << text; }
  bool Accepts(const std::string& authorization) { return keys_->Accepts(authorization); }
  void LoadFrom(const std::string& text) {
    Write(text);
    BATON_ASSERT_OK_AND_ASSIGN(keys_, ApiKeys::Load(path_, clock_));
  }

  const std::string path_;
  FakeClock clock_;
  std::unique_ptr<ApiKeys> keys_;
};

TEST_F(ApiKeysTest, LetsInWhoHasOneOfTheKeys) {
  LoadFrom(std::string("# of the team\n") + kFirst + "\n\n  " + kSecond + "\r\n");
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst));
  EXPECT_TRUE(Accepts(std::string("bearer ") + kSecond));
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), std::string("Bearer"), std::string(kFirst),
        std::string("Bearer ") + kFirst + "0", std::string("Bearer ") + kFirst + kFirst,
        std::string("Bearer sk-first-012345678"), std::string("Basic ") + kFirst,
        std::string("Bearer # of the team"), std::string("Bearer  ") + kFirst}) {
    EXPECT_FALSE(Accepts(wrong)) << wrong;
  }
}

// Whoever asks would wait for a writer, and with them everybody who asks afterwards.
TEST_F(ApiKeysTest, WaitsForNoPipeInThePlaceOfTheFile) {
  LoadFrom(std::string(kFirst) + "\n");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst));
  EXPECT_THAT(ApiKeys::Load(path_, clock_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

TEST_F(ApiKeysTest, FollowsTheFileWithinASecond) {
  LoadFrom(std::string(kFirst) + "\n");
  Write(std::string(kSecond) + "\n");
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst)) << "looked at a moment ago";
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_FALSE(Accepts(std::string("Bearer ") + kFirst));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kSecond));
}

TEST_F(ApiKeysTest, AFileThatBreaksChangesNothing) {
  LoadFrom(std::string(kFirst) + "\n");
  for (const char* broken : {"short\n", "# nothing\n"}) {
    Write(broken);
    clock_.Advance(std::chrono::seconds(2));
    EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst)) << broken;
  }
  std::filesystem::remove(path_);
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst));
}

TEST_F(ApiKeysTest, AFileThatCouldNotBeReadIsReadTheNextTime) {
  LoadFrom(std::string(kFirst) + "\n");
  // An error has been logged before: UBSan takes a file descriptor when it sees a type for the
  // first time.
  Write("short\n");
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst));
  Write(std::string(kSecond) + "\n");
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst)) << "no file can be opened";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_FALSE(Accepts(std::string("Bearer ") + kFirst));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kSecond));
}

TEST_F(ApiKeysTest, AFileTooLargeForKeysIsNotRead) {
  LoadFrom(std::string(kFirst) + "\n");
  std::filesystem::resize_file(path_, uintmax_t{1} << 40);  // sparse
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Accepts(std::string("Bearer ") + kFirst));
  EXPECT_THAT(ApiKeys::Load(path_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 1048576 bytes")));
}

TEST_F(ApiKeysTest, SaysWhatIsWrongWithAFileAndNotWhatItHolds) {
  EXPECT_THAT(ApiKeys::Load(path_).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  Write("# one\nsecret words here\n");
  EXPECT_THAT(ApiKeys::Load(path_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path_ + ":2"), Not(HasSubstr("secret")))));
  Write("\n");
  EXPECT_THAT(ApiKeys::Load(path_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no key")));
}

}  // namespace
}  // namespace baton::router
