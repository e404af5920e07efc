#include "engine/model/safetensors.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<SafetensorsFile> Parse(const std::string& bytes) {
  return SafetensorsFile::Parse(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

auto IsInvalid(const std::string& what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

std::string OneTensor(const std::string& entry, const std::string& data) {
  return RawSafetensors("{\"t\":" + entry + "}", data);
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const std::string bytes = RawSafetensors(
      R"({"__metadata__":{"format":"pt"},
          "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
          "scalar":{"dtype":"F32","shape":[],"data_offsets":[12,16]},
          "empty":{"dtype":"I64","shape":[0,5],"data_offsets":[12,12]}})",
      std::string(12, 'x') + std::string(4, '\0'));
  BATON_ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, Parse(bytes));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_NE(file.Find("a"), nullptr);
  EXPECT_EQ(file.Find("a")->type, TensorType::kBf16);
  EXPECT_THAT(file.Find("a")->shape, ElementsAre(2, 3));
  EXPECT_EQ(file.Find("a")->elements(), 6);
  EXPECT_EQ(file.Find("scalar")->elements(), 1);
  EXPECT_EQ(file.Find("empty")->elements(), 0);
  EXPECT_EQ(file.Find("b"), nullptr);
}

TEST(SafetensorsTest, RefusesFilesShorterThanTheirHeader) {
  EXPECT_THAT(Parse(""), IsInvalid("truncated: 0 bytes"));
  EXPECT_THAT(Parse("1234567"), IsInvalid("truncated: 7 bytes"));
  EXPECT_THAT(Parse(std::string("\x10\0\0\0\0\0\0\0{}", 10)), IsInvalid("header length 16"));
  EXPECT_THAT(Parse(std::string(8, '\xff') + "{}"), IsInvalid("header length"));
}

TEST(SafetensorsTest, RefusesEveryTruncationOfAValidFile) {
  const std::string bytes = BuildSafetensors(
      {{"a", {"F32", {2}, std::string(8, '\1')}}, {"b", {"I8", {3}, std::string(3, '\2')}}});
  ASSERT_THAT(Parse(bytes), IsOk());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Parse(bytes.substr(0, length)).ok()) << length << " bytes";
  }
}

TEST(SafetensorsTest, RefusesHeadersThatAreNotAnObjectOfTensors) {
  EXPECT_THAT(Parse(RawSafetensors("", "")), IsInvalid("not valid JSON"));
  EXPECT_THAT(Parse(RawSafetensors("[]", "")), IsInvalid("not a JSON object"));
  EXPECT_THAT(Parse(RawSafetensors("{\"t\":", "")), IsInvalid("not valid JSON"));
  EXPECT_THAT(Parse(RawSafetensors("{\"\xff\":1}", "")), IsInvalid("UTF-8"));
  EXPECT_THAT(Parse(OneTensor("1", "")), IsInvalid("tensor t: is not an object"));
  EXPECT_THAT(Parse(RawSafetensors(R"({"__metadata__":{"a":1}})", "")),
              IsInvalid("__metadata__.a is not a string"));
}

TEST(SafetensorsTest, RefusesNestingWithoutEnd) {
  const int depth = 1000000;
  EXPECT_THAT(Parse(OneTensor(std::string(depth, '[') + std::string(depth, ']'), "")),
              IsInvalid("nested deeper"));
  std::string objects;
  for (int i = 0; i < 10000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(Parse(OneTensor(objects + "1" + std::string(10000, '}'), "")).ok());
}

TEST(SafetensorsTest, RefusesANameThatOccursTwice) {
  const std::string entry = R"({"dtype":"I8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(Parse(RawSafetensors("{\"t\":" + entry + ",\"t\":" + entry + "}", "x")),
              IsInvalid("\"t\" occurs twice"));
}

TEST(SafetensorsTest, RefusesUnknownTypesAndBadShapes) {
  EXPECT_THAT(Parse(OneTensor(R"({"dtype":"F16","shape":[1],"data_offsets":[0,2]})", "xx")),
              IsInvalid("unsupported dtype F16"));
  EXPECT_THAT(Parse(OneTensor(R"({"shape":[1],"data_offsets":[0,2]})", "xx")),
              IsInvalid("no dtype"));
  EXPECT_THAT(Parse(OneTensor(R"({"dtype":"I8","shape":[-1],"data_offsets":[0,1]})", "x")),
              IsInvalid("invalid size"));
  EXPECT_THAT(Parse(OneTensor(R"({"dtype":"I8","shape":[1.5],"data_offsets":[0,1]})", "x")),
              IsInvalid("invalid size"));
  EXPECT_THAT(Parse(OneTensor(R"({"dtype":"I8","shape":1,"data_offsets":[0,1]})", "x")),
              IsInvalid("needs a shape"));
  EXPECT_THAT(Parse(OneTensor(
                  R"({"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,1]})", "x")),
              IsInvalid("overflows"));
}

TEST(SafetensorsTest, RefusesOffsetsOutsideTheDataOrUnlikeTheShape) {
  const auto with_offsets = [](const std::string& offsets) {
    return OneTensor(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}",
                     std::string(8, 'x'));
  };
  EXPECT_THAT(Parse(with_offsets("[0,8]")), IsOk());
  EXPECT_THAT(Parse(with_offsets("[0,9]")), IsInvalid("outside the data section of 8 bytes"));
  EXPECT_THAT(Parse(with_offsets("[8,0]")), IsInvalid("outside the data section"));
  EXPECT_THAT(Parse(with_offsets("[-4,4]")), IsInvalid("outside the data section"));
  EXPECT_THAT(Parse(with_offsets("[0,18446744073709551615]")), IsInvalid("outside"));
  EXPECT_THAT(Parse(with_offsets("[0]")), IsInvalid("array of two integers"));
  EXPECT_THAT(Parse(with_offsets("[0,4]")), IsInvalid("has 4 bytes of data, F32 [2] needs 8"));
}

TEST(SafetensorsTest, RefusesTensorsThatOverlapOrLeaveBytesOver) {
  const auto two = [](const std::string& second, size_t bytes) {
    return RawSafetensors(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},
                              "b":{"dtype":"I8","shape":[4],"data_offsets":)" +
                              second + "}}",
                          std::string(bytes, 'x'));
  };
  EXPECT_THAT(Parse(two("[4,8]", 8)), IsOk());
  EXPECT_THAT(Parse(two("[2,6]", 6)), IsInvalid("inside the tensor before it"));
  EXPECT_THAT(Parse(two("[0,4]", 4)), IsInvalid("inside the tensor before it"));
  EXPECT_THAT(Parse(two("[5,9]", 9)), IsInvalid("after a gap"));
  EXPECT_THAT(Parse(two("[4,8]", 10)), IsInvalid("the last 2 bytes belong to no tensor"));
}

// Whatever a damaged file says, tensors that are handed out lie inside it.
TEST(SafetensorsTest, RandomDamageIsRefusedOrHarmless) {
  const std::string intact = BuildSafetensors({{"a", {"F32", {2, 3}, std::string(24, '\1')}},
                                               {"b", {"I8", {5}, std::string(5, '\2')}},
                                               {"c", {"I64", {1}, std::string(8, '\3')}}});
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = intact;
    for (uint32_t damage = 1 + random() % 4; damage > 0; --damage) {
      bytes[random() % bytes.size()] = static_cast<char>("0123456789[]{},:\" -eE"[random() % 21]);
    }
    const absl::StatusOr<SafetensorsFile> file = Parse(bytes);
    if (!file.ok()) continue;
    ++accepted;
    for (const auto& [name, tensor] : file->tensors()) {
      const auto* first = reinterpret_cast<const char*>(tensor.bytes.data());
      ASSERT_GE(first, bytes.data());
      ASSERT_LE(first + tensor.bytes.size(), bytes.data() + bytes.size());
      ASSERT_EQ(tensor.elements() * TensorTypeBytes(tensor.type), std::ssize(tensor.bytes));
    }
  }
  EXPECT_GT(accepted, 0);  // damage to data alone
  EXPECT_LT(accepted, 10000);
}

TEST(SafetensorsTest, OpenNamesTheFile) {
  const TempDir dir;
  EXPECT_THAT(SafetensorsFile::Open(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(SafetensorsFile::Open(dir.path()), IsInvalid("not a regular file"));
  dir.Write("bad.safetensors", "short");
  EXPECT_THAT(SafetensorsFile::Open(dir.File("bad.safetensors")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("bad.safetensors"), HasSubstr("truncated"))));
  dir.Write("empty.safetensors", "");
  EXPECT_THAT(SafetensorsFile::Open(dir.File("empty.safetensors")), IsInvalid("truncated"));
}

}  // namespace
}  // namespace baton::engine
