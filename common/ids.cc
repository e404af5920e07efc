#include "common/ids.h"

#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

uint64_t RandomWord() {
  // The operating system's generator: ids of processes forked from one image must differ.
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

RequestId RequestId::Random() { return {RandomWord(), RandomWord()}; }

absl::StatusOr<RequestId> RequestId::Parse(std::string_view hex) {
  RequestId id;
  if (hex.size() != 32 || !absl::SimpleHexAtoi(hex.substr(0, 16), &id.high) ||
      !absl::SimpleHexAtoi(hex.substr(16), &id.low)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request id \"", hex.substr(0, 64), "\" is not 32 hex digits"));
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
