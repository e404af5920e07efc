// Any text as a tokenizer.json: refused with a reason, or a tokenizer that gives every text back.

#include "common/base/check.h"
#include "router/tokenizer/tokenizer.h"
#include "router/tokenizer/utf8.h"

using namespace baton::router;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Parse(text);
  if (!tokenizer.ok()) {
    BATON_CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  BATON_CHECK(tokenizer->longest_token_bytes() > 0);
  for (const std::string_view sample : {text, std::string_view("abc <s> 123\n\n 你好 \xff\xc3")}) {
    for (const AddedTokenText mode : {AddedTokenText::kPlain, AddedTokenText::kMatch}) {
      const std::vector<int32_t> ids = tokenizer->Encode(sample, mode);
      for (const int32_t id : ids) BATON_CHECK(id >= 0 && id < tokenizer->vocab_size()) << id;
      BATON_CHECK(tokenizer->Decode(ids) == SanitizeUtf8(sample));
    }
  }
  return 0;
}
