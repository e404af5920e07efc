#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton::cli {

// Of the bytes of `text`, in lower-case hexadecimal.
std::string Sha256(absl::string_view text);

}  // namespace baton::cli
