#include "engine/recall/probe_json.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/model/json.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 3;

absl::Status Refuse(absl::string_view key, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be ", expected));
}

// Of T's range; -1 is no length, position or token id.
template <typename T>
absl::StatusOr<T> Integer(const json& value, absl::string_view key) {
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<T>::max()) {
    return Refuse(key, "made of integers that are not negative");
  }
  return value.get<T>();
}

// JSON has no NaN, which a broken index may give.
json Number(float value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json EntryJson(const EntryReport& entry) {
  return {{"entry", entry.entry},
          {"selected", entry.selected},
          {"selected_fp32", entry.selected_fp32},
          {"rank", entry.rank},
          {"rank_fp32", entry.rank_fp32},
          {"score", Number(entry.score)},
          {"score_fp32", Number(entry.score_fp32)},
          {"attention", Number(entry.attention)}};
}

json LayerJson(const LayerReport& layer) {
  json needle = json::array();
  for (const EntryReport& entry : layer.needle) needle.push_back(EntryJson(entry));
  return {{"layer", layer.layer},
          {"visible", layer.visible},
          {"selected", layer.selected},
          {"overlap", layer.overlap},
          {"needle", std::move(needle)}};
}

}  // namespace

absl::StatusOr<ProbeRequest> ParseProbeRequest(absl::string_view line) {
  BATON_ASSIGN_OR_RETURN(const json object, ParseUntrustedJson(line, kMaxDepth));
  if (!object.is_object()) return absl::InvalidArgumentError("a request must be an object");
  ProbeRequest request;
  for (const auto& [key, value] : object.items()) {
    if (key == "prompt") {
      if (!value.is_array()) return Refuse(key, "a list of token ids");
      for (const json& id : value) {
        BATON_ASSIGN_OR_RETURN(request.prompt.emplace_back(), Integer<int32_t>(id, key));
      }
    } else if (key == "needle") {
      if (!value.is_array() || value.size() != 2) return Refuse(key, "[begin, end]");
      BATON_ASSIGN_OR_RETURN(request.needle.begin, Integer<int64_t>(value[0], key));
      BATON_ASSIGN_OR_RETURN(request.needle.end, Integer<int64_t>(value[1], key));
    } else if (key == "max_tokens") {
      BATON_ASSIGN_OR_RETURN(request.max_tokens, Integer<int>(value, key));
    } else if (key == "explain") {
      if (!value.is_boolean()) return Refuse(key, "true or false");
      request.explain = value.get<bool>();
    } else {
      return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is not a key of a request"));
    }
  }
  if (request.prompt.empty()) return Refuse("prompt", "a list of token ids");
  return request;
}

json ToJson(const ProbeAnswer& answer) {
  json rows = json::array();
  for (const RowReport& row : answer.rows) {
    json layers = json::array();
    for (const LayerReport& layer : row.layers) layers.push_back(LayerJson(layer));
    rows.push_back(
        {{"position", row.position}, {"token", row.token}, {"layers", std::move(layers)}});
  }
  json handoff = json::array();
  for (const StreamReport& stream : answer.handoff) {
    handoff.push_back({{"stream", CacheStreamName(stream.stream)},
                       {"records", stream.records},
                       {"different", stream.different}});
  }
  return {{"tokens", answer.tokens},
          {"rows", std::move(rows)},
          {"handoff", std::move(handoff)},
          {"prefill_seconds", answer.prefill_seconds},
          {"cache_bytes", answer.cache_bytes}};
}

}  // namespace baton::engine
