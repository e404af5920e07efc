#include "router/chat/json_text.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

std::string Rewritten(const std::string& text) {
  const auto value = ParseJson(text);
  return value.ok() ? PythonJson(*value) : std::string(value.status().message());
}

TEST(PythonJsonTest, SeparatorsAreFollowedByOneSpaceAndKeysKeepTheirOrder) {
  EXPECT_EQ(Rewritten(R"({"b":[1,2,{"z":null}],"a":{},"c":[]})"),
            R"({"b": [1, 2, {"z": null}], "a": {}, "c": []})");
}

TEST(PythonJsonTest, NonAsciiIsKeptAndControlsAreEscaped) {
  EXPECT_EQ(Rewritten(R"("\u4f60\u597d \ud83d\ude00 \u0000\u001f\u007f\"\\\/\b\f\n\r\t")"),
            "\"你好 😀 \\u0000\\u001f\x7f\\\"\\\\/\\b\\f\\n\\r\\t\"");
}

TEST(PythonJsonTest, IntegersKeepAll64Bits) {
  EXPECT_EQ(Rewritten("[0, -1, 9223372036854775807, -9223372036854775808, 18446744073709551615]"),
            "[0, -1, 9223372036854775807, -9223372036854775808, 18446744073709551615]");
}

TEST(PythonJsonTest, FloatsAreWrittenAsPythonWritesThem) {
  EXPECT_EQ(Rewritten("[1.0, -0.0, 0.1, 1e-5, 0.0001, 1E5, 1e15, 1e16, 1.5e300, 2.5e-7, 1e22]"),
            "[1.0, -0.0, 0.1, 1e-05, 0.0001, 100000.0, 1000000000000000.0, 1e+16, 1.5e+300, "
            "2.5e-07, 1e+22]");
  EXPECT_EQ(Rewritten("[123456789.123, 5e-324, 1.7976931348623157e308]"),
            "[123456789.123, 5e-324, 1.7976931348623157e+308]");
}

TEST(PythonJsonTest, LiteralsAreJsonLiterals) {
  EXPECT_EQ(Rewritten("[true,false,null]"), "[true, false, null]");
}

TEST(ParseJsonTest, LastOfDuplicateKeysWinsAtThePlaceOfTheFirst) {
  EXPECT_EQ(Rewritten(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(ParseJsonTest, MalformedTextIsRefused) {
  for (const char* text : {"", "{", "[1,]", "nul", "\"\xff\"", "1 2", "{\"a\" 1}"}) {
    EXPECT_EQ(ParseJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseJsonTest, DeepNestingIsRefusedAtTheLimit) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(ParseJson(nested(kMaxJsonDepth + 1)).ok());
  EXPECT_FALSE(ParseJson(nested(1'000'000)).ok());
}

TEST(ParseJsonTest, ObjectsOfTooManyKeysAreRefusedAtTheLimit) {
  const auto object = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":{\"x\":1}";
    return text + "}";
  };
  EXPECT_TRUE(ParseJson("[" + object(kMaxJsonKeysPerObject) + "]").ok());
  EXPECT_FALSE(ParseJson("[" + object(kMaxJsonKeysPerObject + 1) + "]").ok());
  EXPECT_FALSE(ParseJson(object(300'000)).ok());
}

TEST(JsonQuotedTest, EscapedStretchesPutTogetherAreTheEscapedWhole) {
  std::string stretches = "\"";
  for (const char* stretch : {"a\"", "\n", "é", "\x01"}) AppendJsonEscaped(stretch, &stretches);
  EXPECT_EQ(stretches + "\"", JsonQuoted("a\"\né\x01"));
}

TEST(ParseJsonTest, AZeroByteIsNotTheEnd) {
  const std::string text("{} \0 more", 9);
  EXPECT_EQ(Rewritten(text), "not valid JSON: it has a zero byte");
  EXPECT_FALSE(IsJson(text));
  EXPECT_TRUE(IsJson("{}"));
  EXPECT_FALSE(IsJson("{} more"));
}

}  // namespace
}  // namespace baton::router
