// Any text as the encoding file of a checkpoint: an error, or strings no longer than the source.

#include "cli/chat_prompt_import.h"
#include "cli/python_strings.h"
#include "common/base/check.h"

using namespace baton::cli;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view source(reinterpret_cast<const char*>(data), size);
  const auto strings = TopLevelStrings(source);
  BATON_CHECK(strings.ok() || absl::IsInvalidArgument(strings.status())) << strings.status();
  if (strings.ok()) {
    for (const auto& [name, text] : *strings) BATON_CHECK(text.size() <= size) << name;
  }
  BATON_CHECK(!ImportChatPrompts(source, OfficialDigests()).ok());
  return 0;
}
