#include "tests/router/tokenizer/test_files.h"

#include <fstream>

#include "router/tokenizer/utf8.h"

namespace baton::router::testing {

using nlohmann::json;

std::string SpellingOfByte(int byte) {
  char32_t next_unprintable = 256;
  for (int b = 0; b <= byte; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
    const char32_t code_point = printable ? b : next_unprintable++;
    if (b < byte) continue;
    std::string spelling;
    AppendUtf8(code_point, &spelling);
    return spelling;
  }
  return {};
}

json SmallTokenizerFile() {
  json file;
  std::ifstream(kNeedlePath) >> file;  // for the pipeline around the model
  json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[SpellingOfByte(byte)] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = {"a b", "ab c"};
  json special = file["added_tokens"][0];
  special["id"] = 258;
  special["content"] = "<s>";
  file["added_tokens"] = {special};
  return file;
}

}  // namespace baton::router::testing
