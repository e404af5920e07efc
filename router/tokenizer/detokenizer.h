#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/tokenizer/tokenizer.h"

namespace baton::router {

// Turns a stream of token ids into a stream of text. Text comes out as soon as it is certain; bytes
// that may be the start of a code point wait for the next token. All outputs put together are
// Tokenizer::Decode of all ids. One object per generated sequence; one thread at a time.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = false;      // leave out tokens that the tokenizer marks as special
    std::vector<int32_t> keep_ids;  // but not these: markup that a later stage has to see
  };

  // `tokenizer` must outlive the object.
  Detokenizer(const Tokenizer* tokenizer, Options options);

  // The text that `id` completes: valid UTF-8, maybe empty. Unknown ids yield nothing. `begin`, if
  // given: how many bytes of it stand before the character that the token begins in.
  std::string Push(int32_t id, size_t* begin = nullptr);
  // Whether the token is part of the text.
  bool Shows(int32_t id) const;

  // Ends the sequence: U+FFFD if a code point was left incomplete, else nothing. The object may be
  // used again for another sequence.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  Options options_;
  std::string pending_;  // at most 3 bytes: the start of a code point
};

}  // namespace baton::router
