#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/needle/haystack.h"
#include "router/tokenizer/tokenizer.h"

// One cell of the grid as a conversation: where its needle lies, to the token.

namespace baton::cli {

struct Cell {
  int64_t tokens = 0;   // of the first prompt, as the model's chat format renders it
  double depth = 0;     // of the needle, in percent of them
  int distractors = 0;  // other passphrases in the text
  int turns = 1;        // questions: of other passphrases first, of the needle last
  // The needle's sentence begins at a position of this residue; modulus 0: anywhere.
  int modulus = 0;
  int residue = 0;
  uint64_t seed = 0;

  static constexpr int kMostDistractors = 40;
};

struct Conversation {
  struct Turn {
    std::string text;    // what the user says
    std::string answer;  // the passphrase asked for
  };
  std::vector<Turn> turns;
  // Of the needle in the first prompt, when there is a tokenizer.
  int64_t sentence_begin = -1;
  int64_t answer_begin = -1;  // of the passphrase itself
  int64_t answer_end = -1;
};

// How long texts are. Without the model's tokenizer an estimate.
class TextMeter {
 public:
  explicit TextMeter(const router::Tokenizer* tokenizer, double characters_per_token = 5.06)
      : tokenizer_(tokenizer), characters_per_token_(characters_per_token) {}

  bool exact() const { return tokenizer_ != nullptr; }
  int64_t Count(absl::string_view text) const;

 private:
  const router::Tokenizer* tokenizer_;
  double characters_per_token_;
};

// The same for the same cell and tokenizer. OUT_OF_RANGE: so many sentences do not fit into so few
// tokens. With a tokenizer the first prompt has cell.tokens tokens, if the chat format is the
// model's own.
absl::StatusOr<Conversation> MakeConversation(const Cell& cell, const TextMeter& meter);

}  // namespace baton::cli
