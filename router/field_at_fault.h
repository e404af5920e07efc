#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// What statuses say of the field of a request that is at fault.

namespace baton::router {

inline constexpr absl::string_view kFieldAtFault = "baton/field-at-fault";  // of a payload

// For front ends that tell the field apart from the words: as POST /v1/completions calls it.
inline absl::Status AtFault(absl::string_view field, absl::Status status) {
  if (!status.ok()) status.SetPayload(kFieldAtFault, absl::Cord(field));
  return status;
}

// Empty: none.
inline std::string FieldAtFault(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldAtFault);
  return field ? std::string(*field) : "";
}

// What a client sent as messages quote it: cut if it is long, as statuses of gRPC have to fit a
// header.
inline std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 100;
  if (text.size() <= kLongest) return absl::StrCat("'", text, "'");
  size_t cut = kLongest;  // between two characters: what is not UTF-8, clients cannot show
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return absl::StrCat("'", text.substr(0, cut), "...'");
}

}  // namespace baton::router
