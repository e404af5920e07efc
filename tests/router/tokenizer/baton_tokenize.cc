#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "router/tokenizer/tokenizer.h"

// baton-tokenize TOKENIZER.JSON: reads one JSON string a line from standard input and answers each
// with {"match": [ids], "plain": [ids], "text": decoded} on one line: added tokens in the text
// taken as tokens, as plain text, and the text of the first list. baton-tokenize TOKENIZER.JSON
// --time: encodes standard input as one text and prints MB/s.

namespace {

using baton::router::AddedTokenText;
using baton::router::Tokenizer;

int AnswerLines(const Tokenizer& tokenizer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const nlohmann::json text = nlohmann::json::parse(line, nullptr, false);
    if (!text.is_string()) {
      std::cerr << "expected a JSON string, got " << line << "\n";
      return 1;
    }
    const auto ids = tokenizer.Encode(text.get<std::string>(), AddedTokenText::kMatch);
    const nlohmann::json answer = {
        {"match", ids},
        {"plain", tokenizer.Encode(text.get<std::string>(), AddedTokenText::kPlain)},
        {"text", tokenizer.Decode(ids)}};
    std::cout << answer.dump() << "\n";
  }
  return 0;
}

int Time(const Tokenizer& tokenizer) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto start = std::chrono::steady_clock::now();
  const size_t tokens = tokenizer.Encode(text).size();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu bytes, %zu tokens, %.1f MB/s\n", text.size(), tokens,
              static_cast<double>(text.size()) / 1e6 / seconds.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: baton-tokenize TOKENIZER.JSON [--time]\n";
    return 2;
  }
  const auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  return argc > 2 && std::string_view(argv[2]) == "--time" ? Time(*tokenizer)
                                                           : AnswerLines(*tokenizer);
}
