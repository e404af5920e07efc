#include "cli/bench/trace.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 24;  // of one request
constexpr double kEndOfTime = 0x1p53;             // milliseconds; all before are exact as a double

TraceRequest FromJson(const nlohmann::json& json) {
  TraceRequest request;
  // Some traces count in fractions of a millisecond.
  request.timestamp_ms = static_cast<int64_t>(json.at("timestamp").get<double>());
  request.input_length = json.at("input_length").get<int64_t>();
  request.output_length = json.at("output_length").get<int64_t>();
  request.hash_ids = json.value("hash_ids", std::vector<int64_t>());
  request.session_id = json.value("session_id", int64_t{-1});
  return request;
}

bool Sensible(const nlohmann::json& tokens) {
  const double value = tokens.get<double>();  // which any number can become without overflow
  return value >= 1 && value <= kMaxTokens;
}

// NaN is not either.
bool IsTime(const nlohmann::json& timestamp) {
  const double value = timestamp.get<double>();
  return value >= 0 && value < kEndOfTime;
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ParseTrace(absl::string_view text,
                                                     absl::string_view source) {
  std::vector<TraceRequest> requests;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(source, ":", number, ": ", what));
    };
    try {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (!IsTime(json.at("timestamp"))) return error("timestamp is not from 0 to 2^53");
      if (!Sensible(json.at("input_length"))) return error("input_length is not from 1 to 2^24");
      if (!Sensible(json.at("output_length"))) return error("output_length is not from 1 to 2^24");
      TraceRequest request = FromJson(json);
      if (!requests.empty() && request.timestamp_ms < requests.back().timestamp_ms) {
        return error("timestamp is earlier than that of the line before");
      }
      requests.push_back(std::move(request));
    } catch (const nlohmann::json::exception& exception) {
      return error(exception.what());
    }
  }
  if (requests.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": no requests"));
  return requests;
}

std::string TraceText(const std::vector<TraceRequest>& requests) {
  std::string text;
  for (const TraceRequest& request : requests) {
    nlohmann::ordered_json json = {{"timestamp", request.timestamp_ms},
                                   {"input_length", request.input_length},
                                   {"output_length", request.output_length},
                                   {"hash_ids", request.hash_ids}};
    if (request.session_id >= 0) json["session_id"] = request.session_id;
    absl::StrAppend(&text, json.dump(), "\n");
  }
  return text;
}

}  // namespace baton::cli
