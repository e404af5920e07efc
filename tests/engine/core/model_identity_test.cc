#include "engine/model_identity.h"

#include <filesystem>
#include <fstream>

#include "common/fnv1a.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

class ModelIdentityTest : public ::testing::Test {
 protected:
  ModelIdentityTest() : directory_(baton::testing::TestPath("model_identity") / "identity-1b") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~ModelIdentityTest() override { fs::remove_all(directory_.parent_path()); }

  absl::StatusOr<ModelIdentity> Read() { return ReadModelIdentity(directory_.string()); }

  const fs::path directory_;
};

TEST_F(ModelIdentityTest, IsTheDirectoryAndTheTokenizersBytes) {
  std::ofstream(directory_ / "tokenizer.json") << "{}";
  BATON_ASSERT_OK_AND_ASSIGN(const ModelIdentity identity, Read());
  EXPECT_EQ(identity.name, "identity-1b");
  EXPECT_EQ(identity.tokenizer_hash, Fnv1a64("{}"));
}

TEST_F(ModelIdentityTest, WithoutATokenizerTheHashIsZero) {
  BATON_ASSERT_OK_AND_ASSIGN(const ModelIdentity identity, Read());
  EXPECT_EQ(identity.tokenizer_hash, 0u);
}

TEST_F(ModelIdentityTest, ADirectoryInPlaceOfTheTokenizerIsAnErrorThatNamesIt) {
  fs::create_directory(directory_ / "tokenizer.json");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("tokenizer.json is not a regular file")));
}

}  // namespace
}  // namespace baton::engine
