#include "common/tls/certificate_follower.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/read_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::tls {
namespace {

using namespace std::chrono_literals;
using ::baton::testing::CertificateAuthority;
using ::baton::testing::FakeClock;
using ::baton::testing::StatusIs;
using ::baton::testing::WriteAtOnce;
using ::testing::HasSubstr;

class CertificateFollowerTest : public ::testing::Test {
 protected:
  CertificateFollowerTest() : files_(ca_.Issue(folder_)) { testing::Age(files_); }
  ~CertificateFollowerTest() override { std::filesystem::remove_all(folder_); }

  void Follow() {
    const auto publish = [this](const CertificateTexts& texts) {
      ++published_;
      if (fails_) return absl::ResourceExhaustedError("no memory");
      MutexLock lock(mutex_);
      current_ = texts.certificate;
      return absl::OkStatus();
    };
    BATON_ASSERT_OK_AND_ASSIGN(follower_, CertificateFollower::Start(files_, publish, clock_));
  }
  // Whoever sees a change after this, the follower's thread or this one: it has been dealt with.
  void LookAgain() {
    clock_.Advance(1s);
    follower_->Look();
  }
  std::string Current() {
    MutexLock lock(mutex_);
    return current_;
  }

  const std::filesystem::path folder_ = testing::TestPath("certificate_follower");
  CertificateAuthority ca_;
  CertificateFiles files_;
  FakeClock clock_;
  std::atomic<int> published_{0};
  std::atomic<bool> fails_{false};
  Mutex mutex_;
  std::string current_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CertificateFollower> follower_;
};

TEST_F(CertificateFollowerTest, RenewedFilesArePublishedByAThreadOfItsOwn) {
  Follow();
  const std::string first = Current();
  EXPECT_EQ(first, *ReadFile(files_.certificate));
  ca_.Issue(folder_);
  clock_.Advance(1s);
  for (int i = 0; i < 1000 && Current() == first; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(Current(), *ReadFile(files_.certificate));
  EXPECT_EQ(published_, 2);
}

TEST_F(CertificateFollowerTest, WhatIsNotGoodIsNotPublished) {
  Follow();
  for (const std::string& file : {files_.key, files_.ca}) {
    const std::string good = *ReadFile(file);
    WriteAtOnce(file, "");  // as while it is being written
    LookAgain();
    EXPECT_EQ(published_, 1) << file;
    WriteAtOnce(file, good);
  }
  LookAgain();
  EXPECT_EQ(published_, 2);
}

TEST_F(CertificateFollowerTest, WhatTheTlsLibraryRefusesIsNotPublished) {
  Follow();
  for (const CertificateAuthority::Wanted& wanted :
       {CertificateAuthority::Wanted{.key = "RSA-1024"},
        {.digest = "SHA1"},
        {.key = "secp256k1"}}) {
    ca_.Issue(folder_, wanted);
    LookAgain();
    EXPECT_EQ(published_, 1) << wanted.key << wanted.digest;
  }
  ca_.Issue(folder_);
  LookAgain();
  EXPECT_EQ(published_, 2);
}

TEST_F(CertificateFollowerTest, WhatFailsIsTriedAgainThoughNoFileChanges) {
  Follow();
  ca_.Issue(folder_);
  fails_ = true;
  LookAgain();
  LookAgain();
  EXPECT_EQ(published_, 3);
  EXPECT_NE(Current(), *ReadFile(files_.certificate));
  fails_ = false;
  LookAgain();
  EXPECT_EQ(Current(), *ReadFile(files_.certificate));
  LookAgain();
  EXPECT_EQ(published_, 4) << "taken";
}

TEST_F(CertificateFollowerTest, ACertificateIsTakenWhenItBecomesValid) {
  Follow();
  ca_.Issue(folder_, {.begins = 2s});
  LookAgain();
  EXPECT_EQ(published_, 1);
  std::this_thread::sleep_for(2100ms);
  LookAgain();
  EXPECT_EQ(published_, 2);
}

TEST_F(CertificateFollowerTest, AtTheStartFilesMustBeGood) {
  const auto publish = [](const CertificateTexts&) { return absl::OkStatus(); };
  WriteAtOnce(files_.key, "");
  EXPECT_THAT(CertificateFollower::Start(files_, publish, clock_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(files_.key)));
}

}  // namespace
}  // namespace baton::tls
