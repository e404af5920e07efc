#include "router/registry/membership.h"

#include <algorithm>
#include <functional>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Answers what a test says; unknown names do not exist.
class FakeResolver final : public Resolver {
 public:
  void Set(const std::string& name, std::vector<std::string> addresses) {
    MutexLock lock(mutex_);
    answers_[name] = std::move(addresses);
  }
  // Waits for two lookups: one that began after this call is over by then.
  bool WaitForLookup() {
    MutexLock lock(mutex_);
    const int goal = lookups_ + 2;
    while (lookups_ < goal) {
      if (!changed_.WaitFor(mutex_, seconds(10))) return false;
    }
    return true;
  }
  int lookups() const {
    MutexLock lock(mutex_);
    return lookups_;
  }

  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host,
                                                   const std::string& port) override {
    MutexLock lock(mutex_);
    ++lookups_;
    changed_.NotifyAll();
    const std::vector<std::string>& addresses = answers_[host + ":" + port];
    if (addresses.empty()) return absl::UnavailableError("no such name: " + host);
    return addresses;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::vector<std::string>> answers_ ABSL_GUARDED_BY(mutex_);
};

class MembershipTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& prefill, const std::vector<std::string>& decode) {
    BATON_ASSERT_OK_AND_ASSIGN(std::vector<ListedWorkers> listed,
                               ParseWorkerList(WorkerRole::kPrefill, prefill));
    BATON_ASSERT_OK_AND_ASSIGN(const std::vector<ListedWorkers> more,
                               ParseWorkerList(WorkerRole::kDecode, decode));
    listed.insert(listed.end(), more.begin(), more.end());
    membership_.emplace(&registry_, std::move(listed), &resolver_, milliseconds(5));
    ASSERT_TRUE(membership_->WaitFirstLookups(seconds(10)));
  }

  // "prefill p:1" ...
  std::vector<std::string> Members() const {
    std::vector<std::string> members;
    for (const Worker& worker : registry_.Current()->workers) {
      members.push_back(std::string(WorkerRoleName(worker.role)) + " " + worker.target);
    }
    return members;
  }

  FakeResolver resolver_;
  Registry registry_{{}};
  std::optional<Membership> membership_;
};

TEST_F(MembershipTest, ListedAddressesAreMembersWithoutAnyLookup) {
  Start({"p:1"}, {"d:1", "d:2"});
  EXPECT_THAT(Members(), ElementsAre("prefill p:1", "decode d:1", "decode d:2"));
  EXPECT_EQ(resolver_.lookups(), 0);
}

TEST_F(MembershipTest, ANameStandsForAllItsAddresses) {
  resolver_.Set("prefill.svc:7001", {"10.0.0.1:7001", "10.0.0.2:7001"});
  Start({"dns:prefill.svc:7001"}, {"d:1"});
  EXPECT_THAT(Members(),
              ElementsAre("decode d:1", "prefill 10.0.0.1:7001", "prefill 10.0.0.2:7001"));
}

TEST_F(MembershipTest, WorkersComeAndGoWithTheAnswers) {
  resolver_.Set("d:1", {"10.0.0.1:1"});
  Start({}, {"dns:d:1"});
  resolver_.Set("d:1", {"10.0.0.1:1", "10.0.0.2:1"});
  ASSERT_TRUE(resolver_.WaitForLookup());
  EXPECT_THAT(Members(), ElementsAre("decode 10.0.0.1:1", "decode 10.0.0.2:1"));
  resolver_.Set("d:1", {"10.0.0.2:1"});
  ASSERT_TRUE(resolver_.WaitForLookup());
  EXPECT_THAT(Members(), ElementsAre("decode 10.0.0.2:1"));
}

TEST_F(MembershipTest, AFailedLookupChangesNothing) {
  resolver_.Set("d:1", {"10.0.0.1:1"});
  Start({}, {"dns:d:1"});
  resolver_.Set("d:1", {});
  ASSERT_TRUE(resolver_.WaitForLookup());
  EXPECT_THAT(Members(), ElementsAre("decode 10.0.0.1:1"));
}

TEST_F(MembershipTest, ANameMayComeToExistLater) {
  Start({}, {"dns:d:1"});
  EXPECT_THAT(Members(), IsEmpty());
  resolver_.Set("d:1", {"10.0.0.1:1"});
  ASSERT_TRUE(resolver_.WaitForLookup());
  EXPECT_THAT(Members(), ElementsAre("decode 10.0.0.1:1"));
}

TEST(WorkerListTest, NamesTheEntryThatIsNoAddress) {
  for (const char* entry : {"host", "dns:host", ":7001", "host:port", "host:0", "dns::7001",
                            "host:70000", "dns:", ""}) {
    EXPECT_THAT(ParseWorkerList(WorkerRole::kDecode, {"good:1", entry}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("decode-workers has '" + std::string(entry) + "'")));
  }
}

TEST(WorkerListTest, AnEntryThatStandsThereTwiceIsNamed) {
  EXPECT_THAT(ParseWorkerList(WorkerRole::kPrefill, {"a:1", "a:2", "a:1"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("prefill-workers has 'a:1' more than once")));
  EXPECT_THAT(ParseWorkerList(WorkerRole::kDecode, {"a:1", "dns:a:1"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("decode-workers has 'dns:a:1' more than once")));
}

TEST(SystemResolverTest, KnowsNumbersAndTheLocalHost) {
  SystemResolver resolver;
  BATON_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> number,
                             resolver.Resolve("127.0.0.1", "80"));
  EXPECT_THAT(number, ElementsAre("127.0.0.1:80"));
  BATON_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> local,
                             resolver.Resolve("localhost", "7001"));
  EXPECT_TRUE(std::ranges::is_sorted(local));
  EXPECT_THAT(resolver.Resolve("no-such-host.invalid", "1"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no-such-host.invalid")));
}

}  // namespace
}  // namespace baton::router
