#include "router/tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>

namespace baton::router {
namespace {

// What may follow a lead byte: total length and the range of the second byte (Unicode table 3-7:
// the range excludes overlong forms, surrogates and values above U+10FFFF).
struct Lead {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit NextUtf8(std::string_view text, size_t pos) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  const uint8_t first = byte_at(0);
  const Lead lead = ClassifyLead(first);
  if (lead.length == 0) return {Utf8Unit::Kind::kInvalid, 0, 1};
  if (lead.length == 1) return {Utf8Unit::Kind::kValid, first, 1};
  char32_t code_point = first & (0x7F >> lead.length);
  const size_t available = std::min(lead.length, text.size() - pos);
  for (size_t i = 1; i < available; ++i) {
    const uint8_t byte = byte_at(i);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Unit::Kind::kInvalid, 0, i};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  if (available < lead.length) return {Utf8Unit::Kind::kIncomplete, 0, available};
  return {Utf8Unit::Kind::kValid, code_point, lead.length};
}

bool IsValidUtf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Unit unit = NextUtf8(text, pos);
    if (unit.kind != Utf8Unit::Kind::kValid) return false;
    pos += unit.bytes;
  }
  return true;
}

std::string SanitizeUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Unit unit = NextUtf8(text, pos);
    if (unit.kind == Utf8Unit::Kind::kValid) {
      result.append(text.substr(pos, unit.bytes));
    } else {
      result.append(kReplacementCharacter);
    }
    pos += unit.bytes;
  }
  return result;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
    return;
  }
  if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      push(0xE0 | (code_point >> 12));
    } else {
      push(0xF0 | (code_point >> 18));
      push(0x80 | ((code_point >> 12) & 0x3F));
    }
    push(0x80 | ((code_point >> 6) & 0x3F));
  }
  push(0x80 | (code_point & 0x3F));
}

}  // namespace baton::router
