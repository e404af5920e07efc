// Any bytes as a prompt: token ids that give the text back, however it is cut into segments, and no
// control token out of plain text.

#include "common/base/check.h"
#include "router/tokenizer/detokenizer.h"
#include "router/tokenizer/tokenizer.h"
#include "router/tokenizer/utf8.h"

using namespace baton::router;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer* const tokenizer =
      new Tokenizer(*Tokenizer::Load(BATON_SOURCE_DIR "/models/needle-17m/tokenizer.json"));
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  const std::vector<int32_t> plain = tokenizer->Encode(text);
  for (const int32_t id : plain) BATON_CHECK(!tokenizer->IsSpecial(id)) << id;
  BATON_CHECK(tokenizer->Decode(plain) == SanitizeUtf8(text));
  BATON_CHECK(size / tokenizer->longest_token_bytes() <= plain.size());

  const std::vector<int32_t> matched = tokenizer->Encode(text, AddedTokenText::kMatch);
  BATON_CHECK(tokenizer->Decode(matched) == SanitizeUtf8(text));

  const size_t cut = size == 0 ? 0 : data[0] % size;
  const TextSegment segments[] = {{.text = std::string(text.substr(0, cut))},
                                  {.text = std::string(text.substr(cut))}};
  BATON_CHECK(tokenizer->Encode(segments) == plain);
  return 0;
}
