#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/parallel/socket.h"

namespace baton::engine {

// Of this machine, where nobody listens.
inline std::string FreeAddress() {
  return absl::StrCat("127.0.0.1:", Socket::Listen({.host = "127.0.0.1", .port = 0})->port());
}

}  // namespace baton::engine
