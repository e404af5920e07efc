#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

// Which field of a request a status blames, for front ends that tell it apart from the words: as
// POST /v1/completions calls it.

namespace baton::router {

inline constexpr absl::string_view kFieldAtFault = "baton/field-at-fault";  // of a payload

inline absl::Status AtFault(absl::string_view field, absl::Status status) {
  if (!status.ok()) status.SetPayload(kFieldAtFault, absl::Cord(field));
  return status;
}

// Empty: none.
inline std::string FieldAtFault(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldAtFault);
  return field ? std::string(*field) : "";
}

}  // namespace baton::router
