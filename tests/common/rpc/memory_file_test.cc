#include "common/rpc/memory_file.h"

#include <fstream>
#include <iterator>

#include "common/read_file.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::rpc {
namespace {

using ::baton::testing::IsOkAndHolds;

TEST(MemoryFileTest, WhoeverOpensThePathFindsWhatWasPutThereLast) {
  BATON_ASSERT_OK_AND_ASSIGN(MemoryFile file, MemoryFile::Create());
  const std::string path = file.path();
  EXPECT_THAT(ReadFile(path), IsOkAndHolds(""));
  for (const size_t size : {5, 1'000'000, 0, 7}) {
    const std::string text(size, 'x');
    BATON_ASSERT_OK_AND_ASSIGN(const MemoryFile fresh, MemoryFile::Create(text));
    file.Replace(fresh);
    EXPECT_EQ(file.path(), path);
    EXPECT_THAT(ReadFile(path), IsOkAndHolds(text));
  }
}

TEST(MemoryFileTest, WhoeverHasItOpenKeepsTheOldText) {
  BATON_ASSERT_OK_AND_ASSIGN(MemoryFile file, MemoryFile::Create("old"));
  std::ifstream open(file.path());
  BATON_ASSERT_OK_AND_ASSIGN(const MemoryFile fresh, MemoryFile::Create("renewed"));
  file.Replace(fresh);
  EXPECT_THAT(ReadFile(file.path()), IsOkAndHolds("renewed"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(open), {}), "old");
}

}  // namespace
}  // namespace baton::rpc
