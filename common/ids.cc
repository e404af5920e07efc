#include "common/ids.h"

#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

uint64_t RandomWord() {
  // The operating system's generator: ids of processes forked from one image must differ.
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

bool ParseWord(std::string_view hex, uint64_t& word) {
  word = 0;
  for (const char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    const int digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                          ? c - '0'
                          : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
    word = (word << 4) | static_cast<uint64_t>(digit);
  }
  return true;
}

}  // namespace

RequestId RequestId::Random() { return {RandomWord(), RandomWord()}; }

absl::StatusOr<RequestId> RequestId::Parse(std::string_view hex) {
  RequestId id;
  // Digit by digit: library parsers also take signs, spaces and 0x.
  if (hex.size() != 32 || !ParseWord(hex.substr(0, 16), id.high) ||
      !ParseWord(hex.substr(16), id.low)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request id \"", std::string(hex.substr(0, 64)), "\" is not 32 hex digits"));
  }
  return id;
}

std::string RequestId::ToString() const { return absl::StrFormat("%016x%016x", high, low); }

std::string AttemptId::ToString() const { return absl::StrCat(request.ToString(), "/", attempt); }

Incarnation NewIncarnation() {
  Incarnation incarnation = 0;
  while (incarnation == 0) incarnation = RandomWord();
  return incarnation;
}

}  // namespace baton
