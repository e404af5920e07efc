#include "router/tokenizer/tokenizer_file.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/tokenizer/tokenizer.h"
#include "tests/router/tokenizer/test_files.h"

namespace baton::router {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SmallTokenizerFile;

std::string ErrorAfter(const std::function<void(json&)>& change) {
  json file = SmallTokenizerFile();
  change(file);
  const auto tokenizer = Tokenizer::Parse(file.dump());
  return tokenizer.ok() ? "accepted" : std::string(tokenizer.status().message());
}

TEST(TokenizerFileTest, SmallFileIsAccepted) {
  const auto tokenizer = Tokenizer::Parse(SmallTokenizerFile().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_THAT(tokenizer->Encode("abcab"), ElementsAre(257, 256));
}

TEST(TokenizerFileTest, MergesMayBePairs) {
  EXPECT_EQ(ErrorAfter([](json& file) {
              file["model"]["merges"] = json::parse(R"([["a", "b"], ["ab", "c"]])");
            }),
            "accepted");
}

TEST(TokenizerFileTest, HarmlessVariationsAreAccepted) {
  EXPECT_EQ(ErrorAfter([](json& file) {
              file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
              file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
              file["model"].erase("ignore_merges");
              file["model"]["dropout"] = nullptr;
              file["model"]["continuing_subword_prefix"] = "";
              json& word = file["pre_tokenizer"]["pretokenizers"][2]["pattern"]["Regex"];
              std::string pattern = word.get<std::string>();  // line breaks written as such
              for (size_t at; (at = pattern.find("\\r\\n")) != std::string::npos;) {
                pattern.replace(at, 4, "\r\n");
              }
              word = pattern;
            }),
            "accepted");
}

TEST(TokenizerFileTest, WhatIsNotImplementedIsRefusedByName) {
  const auto set = [](const char* pointer, json value) {
    return ErrorAfter([&](json& file) { file[json::json_pointer(pointer)] = value; });
  };
  EXPECT_THAT(set("/normalizer", {{"type", "NFC"}}), HasSubstr("normalizer"));
  EXPECT_THAT(set("/truncation", {{"max_length", 5}}), HasSubstr("truncation"));
  EXPECT_THAT(set("/padding", {{"strategy", "x"}}), HasSubstr("padding"));
  EXPECT_THAT(set("/post_processor", {{"type", "TemplateProcessing"}}),
              HasSubstr("post_processor"));
  EXPECT_THAT(set("/decoder", nullptr), HasSubstr("decoder"));
  EXPECT_THAT(set("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\d+"), HasSubstr("stage 0"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/1/behavior", "Removed"), HasSubstr("stage 1"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/2/invert", true), HasSubstr("stage 2"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/3/use_regex", true), HasSubstr("stage 3"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/3", {{"type", "Digits"}}), HasSubstr("stage 3"));
  EXPECT_THAT(set("/model/type", "Unigram"), HasSubstr("BPE"));
  EXPECT_THAT(set("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(set("/model/unk_token", "<unk>"), HasSubstr("unk_token"));
  EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(set("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(set("/model/ignore_merges", "yes"), HasSubstr("ignore_merges"));
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    const std::string error = ErrorAfter([&](json& file) { file["added_tokens"][0][flag] = true; });
    EXPECT_THAT(error, HasSubstr(flag));
    EXPECT_THAT(error, HasSubstr("<s>"));
  }
}

TEST(TokenizerFileTest, ContradictionsAreRefused) {
  const auto change = [](std::function<void(json&)> f) { return ErrorAfter(f); };
  EXPECT_THAT(change([](json& f) { f["model"]["vocab"]["xy"] = 256; }),
              HasSubstr("id 256 belongs to both"));
  EXPECT_THAT(change([](json& f) { f["model"]["vocab"]["xy"] = 258; }),
              HasSubstr("id 258 belongs to both"));
  EXPECT_THAT(change([](json& f) { f["model"]["vocab"]["<s>"] = 259; }), HasSubstr("<s>"));
  EXPECT_THAT(change([](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }),
              HasSubstr("added before"));
  EXPECT_THAT(change([](json& f) {
                f["model"]["merges"] = {"a b", "ab c", "b c"};
              }),
              HasSubstr("merge 2"));
  EXPECT_THAT(change([](json& f) { f["model"]["merges"] = {"a b", "a b"}; }), HasSubstr("merge 1"));
  // A merge must not yield a control token: clients' text could then become one.
  EXPECT_THAT(change([](json& f) {
                f["added_tokens"][0]["content"] = "ab";
                f["model"]["vocab"].erase("ab");
              }),
              HasSubstr("merge 0"));
}

TEST(TokenizerFileTest, MalformedFilesAreRefused) {
  for (const char* text : {"", "{", "[]", "null", "{}", "\xff"}) {
    EXPECT_EQ(Tokenizer::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  const auto set = [](const char* pointer, json value) {
    return ErrorAfter([&](json& file) { file[json::json_pointer(pointer)] = value; });
  };
  EXPECT_THAT(set("/model", 3), HasSubstr("model"));
  EXPECT_THAT(set("/model/vocab", json::array()), HasSubstr("vocab"));
  EXPECT_THAT(set("/model/vocab", json::object()), HasSubstr("byte 0x00"));
  EXPECT_THAT(set("/model/vocab/ab", -1), HasSubstr("ab"));
  EXPECT_THAT(set("/model/vocab/ab", 1.5), HasSubstr("ab"));
  EXPECT_THAT(set("/model/vocab/ab", 2000000000), HasSubstr("token id in 0.."));
  EXPECT_THAT(set("/model/vocab/ab", 18446744073709551615u), HasSubstr("token id in 0.."));
  EXPECT_THAT(set("/model/vocab/你", 300), HasSubstr("byte-level alphabet"));
  EXPECT_THAT(set("/model/merges", "a b"), HasSubstr("merges"));
  EXPECT_THAT(set("/model/merges/0", "a b c"), HasSubstr("merges[0]"));
  EXPECT_THAT(set("/model/merges/0", "ab"), HasSubstr("merges[0]"));
  EXPECT_THAT(set("/model/merges/0", {"a", 1}), HasSubstr("merges[0]"));
  EXPECT_THAT(set("/model/merges/1", "ab 你"), HasSubstr("merges[1]"));
  EXPECT_THAT(set("/added_tokens", 1), HasSubstr("added_tokens"));
  EXPECT_THAT(set("/added_tokens/0", "x"), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(set("/added_tokens/0/content", ""), HasSubstr("empty"));
  EXPECT_THAT(set("/added_tokens/0/id", "0"), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(set("/added_tokens/0/special", 1), HasSubstr("added_tokens[0].special"));
}

TEST(TokenizerFileTest, AZeroByteIsNotTheEnd) {
  const auto tokenizer = Tokenizer::Parse(SmallTokenizerFile().dump() + std::string(1, '\0'));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("zero byte"));
}

TEST(TokenizerFileTest, DeeplyNestedFileIsRefusedWithoutACrash) {
  const std::string deep(200'000, '[');
  EXPECT_FALSE(Tokenizer::Parse(deep).ok());
  EXPECT_FALSE(Tokenizer::Parse("{\"normalizer\":" + deep + std::string(200'000, ']') + "}").ok());
}

TEST(TokenizerFileTest, EveryTruncationOfAFileIsRefused) {
  const std::string text = SmallTokenizerFile().dump();
  for (size_t size = 0; size < text.size(); size += 37) {
    EXPECT_FALSE(Tokenizer::Parse(std::string_view(text).substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace baton::router
