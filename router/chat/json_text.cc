#include "router/chat/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/tokenizer/utf8.h"

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

// Ends the parse where a limit is passed, before anything is built.
class LimitChecker : public nlohmann::json_sax<ordered_json> {
 public:
  bool is_too_large() const { return is_too_large_; }
  // "parse error at line 1, column 15: ...": where and why the parse ended.
  const std::string& syntax_error() const { return syntax_error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool key(string_t&) override { return Allow(++keys_of_open_.back() <= kMaxJsonKeysPerObject); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr size_t kLongest = 200;        // it quotes the text, which is as long as it likes
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error ..."
    syntax_error_ = SanitizeUtf8(what.substr(what.find(' ') + 1, kLongest));
    return false;
  }

 private:
  bool Open() {
    keys_of_open_.push_back(0);
    return Allow(keys_of_open_.size() <= kMaxJsonDepth);
  }
  bool Close() {
    keys_of_open_.pop_back();
    return true;
  }
  bool Allow(bool is_within) {
    is_too_large_ = !is_within;
    return is_within;
  }

  std::vector<int> keys_of_open_;  // keys seen in each open object or array
  bool is_too_large_ = false;
  std::string syntax_error_;
};

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

// The library takes a zero byte for the end of the text, and would not see what follows it.
bool HoldsZeroByte(std::string_view text) { return text.find('\0') != std::string_view::npos; }

}  // namespace

absl::StatusOr<ordered_json> ParseJson(std::string_view text) {
  if (HoldsZeroByte(text)) return absl::InvalidArgumentError("not valid JSON: it has a zero byte");
  LimitChecker limits;
  if (!ordered_json::sax_parse(text, &limits)) {
    return absl::InvalidArgumentError(
        limits.is_too_large()
            ? absl::StrCat("JSON nested deeper than ", kMaxJsonDepth, " levels or with more than ",
                           kMaxJsonKeysPerObject, " keys in one object")
            : absl::StrCat("not valid JSON: ", limits.syntax_error()));
  }
  return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool IsJson(std::string_view text) { return !HoldsZeroByte(text) && ordered_json::accept(text); }

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
