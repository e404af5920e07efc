#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/recall/probe.h"
#include "nlohmann/json.hpp"

// How baton-recall is asked and answers: one JSON object a line, in the same order.

namespace baton::engine {

// {"prompt": [ids], "needle": [begin, end], "max_tokens": 24, "explain": false}, of which only the
// prompt must be there. InvalidArgument names the key.
absl::StatusOr<ProbeRequest> ParseProbeRequest(absl::string_view line);

// Keys as the structs' members; an entry's "rank" counts from 0.
nlohmann::json ToJson(const ProbeAnswer& answer);

}  // namespace baton::engine
