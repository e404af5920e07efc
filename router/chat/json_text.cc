#include "router/chat/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

using nlohmann::ordered_json;

// Python's repr of a float: shortest digits that read back as the same value, in fixed notation
// while the decimal exponent is in -4..15.
void AppendFloat(double value, std::string* out) {
  if (!std::isfinite(value)) {  // Python's spelling; JSON has none
    out->append(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    return;
  }
  char buffer[64];
  const auto end =
      std::to_chars(buffer, std::end(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, end - buffer);  // [-]d[.ddd]e[+-]dd
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed).ptr;
    const std::string_view digits(buffer, fixed - buffer);
    out->append(digits);
    if (digits.find('.') == std::string_view::npos) out->append(".0");
  } else {
    out->append(text);
  }
}

void Append(const ordered_json& value, std::string* out) {
  const char* separator = "";
  switch (value.type()) {
    case ordered_json::value_t::object:
      out->push_back('{');
      for (const auto& [key, member] : value.items()) {
        out->append(std::exchange(separator, ", "));
        out->append(JsonQuoted(key)).append(": ");
        Append(member, out);
      }
      out->push_back('}');
      return;
    case ordered_json::value_t::array:
      out->push_back('[');
      for (const ordered_json& element : value) {
        out->append(std::exchange(separator, ", "));
        Append(element, out);
      }
      out->push_back(']');
      return;
    case ordered_json::value_t::string:
      out->append(JsonQuoted(value.get_ref<const std::string&>()));
      return;
    case ordered_json::value_t::boolean:
      out->append(value.get<bool>() ? "true" : "false");
      return;
    case ordered_json::value_t::number_integer:
      absl::StrAppend(out, value.get<int64_t>());
      return;
    case ordered_json::value_t::number_unsigned:
      absl::StrAppend(out, value.get<uint64_t>());
      return;
    case ordered_json::value_t::number_float:
      AppendFloat(value.get<double>(), out);
      return;
    default:
      out->append("null");
  }
}

}  // namespace

absl::StatusOr<ordered_json> ParseJson(std::string_view text) {
  std::vector<int> keys_of_level;  // keys seen in the open object of each level
  bool is_too_large = false;
  const auto filter = [&](int depth, ordered_json::parse_event_t event, ordered_json&) {
    using Event = ordered_json::parse_event_t;
    if (depth >= kMaxJsonDepth) is_too_large = true;
    if (event == Event::object_start && !is_too_large) {
      keys_of_level.resize(depth + 2);
      keys_of_level[depth + 1] = 0;
    }
    if (event == Event::key && !is_too_large && ++keys_of_level[depth] > kMaxJsonKeysPerObject) {
      is_too_large = true;
    }
    return !is_too_large;
  };
  ordered_json value = ordered_json::parse(text, filter, /*allow_exceptions=*/false);
  if (is_too_large) {
    return absl::InvalidArgumentError(absl::StrCat("JSON nested deeper than ", kMaxJsonDepth,
                                                   " levels or with more than ",
                                                   kMaxJsonKeysPerObject, " keys in one object"));
  }
  if (value.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return value;
}

std::string PythonJson(const ordered_json& value) {
  std::string text;
  Append(value, &text);
  return text;
}

std::string JsonQuoted(std::string_view text) {
  std::string quoted = "\"";
  AppendJsonEscaped(text, &quoted);
  quoted.push_back('"');
  return quoted;
}

void AppendJsonEscaped(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      case '\b':
        out->append("\\b");
        break;
      case '\f':
        out->append("\\f");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
          out->append(escaped);
        } else {
          out->push_back(c);
        }
    }
  }
}

}  // namespace baton::router
