#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace baton::testing {

// Where the test that runs may keep a file or a folder, and no other does: several run at a time,
// each in a process of its own.
inline std::filesystem::path TestPath(const std::string& prefix) {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = prefix + "_" + test.test_suite_name() + "_" + test.name();
  std::replace(name.begin(), name.end(), '/', '_');  // which cases of parameters have
  return std::filesystem::path(::testing::TempDir()) / name;
}

}  // namespace baton::testing
