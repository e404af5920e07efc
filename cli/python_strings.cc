#include "cli/python_strings.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '_'; }

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Walks over a source; what it does not understand it steps over token by token, so that a quote
// inside a comment or another literal opens nothing.
class Scanner {
 public:
  explicit Scanner(absl::string_view source) : source_(source) {}

  bool AtEnd() const { return at_ >= source_.size(); }
  bool AtLineStart() const { return at_ == 0 || source_[at_ - 1] == '\n'; }
  char Peek() const { return AtEnd() ? '\0' : source_[at_]; }

  // Spaces, comments and continued lines; line ends too if `lines`.
  void SkipBlank(bool lines) {
    while (!AtEnd()) {
      if (Peek() == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (absl::StartsWith(Rest(), "\\\n")) {
        at_ += 2;
      } else if (Peek() == ' ' || Peek() == '\t' || Peek() == '\r' || (lines && Peek() == '\n')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool Take(char c) {
    if (Peek() != c || AtEnd()) return false;
    ++at_;
    return true;
  }

  std::string TakeName() {
    const size_t begin = at_;
    while (!AtEnd() && IsNameByte(Peek())) ++at_;
    return std::string(source_.substr(begin, at_ - begin));
  }

  // The literal that starts here; nullopt, and nothing taken, where none starts. Bytes and
  // f-strings are taken but marked, because their value is not their text.
  struct Literal {
    std::string text = {};
    bool is_plain = true;
  };
  absl::StatusOr<std::optional<Literal>> TakeLiteral();

  // One step past whatever stands here.
  absl::Status Skip() {
    BATON_ASSIGN_OR_RETURN(const std::optional<Literal> literal, TakeLiteral());
    if (literal) return absl::OkStatus();
    if (Peek() == '#') {
      SkipBlank(/*lines=*/false);
    } else if (IsNameByte(Peek())) {
      TakeName();
    } else {
      ++at_;
    }
    return absl::OkStatus();
  }

 private:
  absl::string_view Rest() const { return source_.substr(std::min(at_, source_.size())); }
  absl::Status Wrong(absl::string_view what) const {
    const auto lines = std::count(source_.begin(), source_.begin() + static_cast<long>(at_), '\n');
    return absl::InvalidArgumentError(absl::StrCat("line ", lines + 1, ": ", what));
  }
  void TakeEscape(Literal* literal);

  const absl::string_view source_;
  size_t at_ = 0;
};

// As Python reads it; the value of the literal is not known if it needs more than this.
void Scanner::TakeEscape(Literal* literal) {
  static constexpr absl::string_view kSimple = "n\nt\tr\r\\\\\'\'\"\"a\ab\bf\fv\v";
  const char kind = Peek();
  for (size_t i = 0; i < kSimple.size(); i += 2) {
    if (kind != kSimple[i]) continue;
    literal->text.push_back(kSimple[i + 1]);
    ++at_;
    return;
  }
  if (Take('\n')) return;  // the literal goes on in the next line
  const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (digits == 0) {
    literal->is_plain &= kind != 'N' && !absl::ascii_isdigit(kind);
    literal->text.push_back('\\');
    return;
  }
  uint32_t code_point = 0;
  if (Rest().size() <= digits || !absl::SimpleHexAtoi(Rest().substr(1, digits), &code_point) ||
      code_point > 0x10FFFF) {
    literal->is_plain = false;
    return;
  }
  at_ += 1 + digits;
  AppendUtf8(code_point, &literal->text);
}

absl::StatusOr<std::optional<Scanner::Literal>> Scanner::TakeLiteral() {
  constexpr size_t kLongestPrefix = 2;
  size_t prefix = 0;
  while (prefix < kLongestPrefix && prefix < Rest().size() &&
         absl::StrContains("rRbBuUfF", Rest()[prefix])) {
    ++prefix;
  }
  const absl::string_view from_quote = Rest().substr(prefix);
  if (from_quote.empty() || (from_quote[0] != '"' && from_quote[0] != '\'')) return std::nullopt;
  const std::string kinds = absl::AsciiStrToLower(Rest().substr(0, prefix));
  const bool is_raw = absl::StrContains(kinds, 'r');
  Literal literal{.is_plain = !absl::StrContains(kinds, 'b') && !absl::StrContains(kinds, 'f')};

  const std::string triple(3, from_quote[0]);
  const std::string end = absl::StartsWith(from_quote, triple) ? triple : triple.substr(0, 1);
  const bool may_span_lines = end.size() == 3;
  at_ += prefix + end.size();
  while (!absl::StartsWith(Rest(), end)) {
    if (AtEnd() || (Peek() == '\n' && !may_span_lines)) return Wrong("a string has no end");
    const char c = source_[at_++];
    if (c != '\\') {
      literal.text.push_back(c);
    } else if (is_raw || !literal.is_plain) {
      literal.text.push_back(c);
      if (!AtEnd()) literal.text.push_back(source_[at_++]);  // a quote here does not end it
    } else {
      TakeEscape(&literal);
    }
  }
  at_ += end.size();
  return literal;
}

// What stands after '=' or, in a dictionary, after ':': one or more plain literals, maybe in
// parentheses, and nothing else.
absl::StatusOr<std::optional<std::string>> TakeStringExpression(Scanner& scanner,
                                                                bool in_dictionary) {
  scanner.SkipBlank(in_dictionary);
  const bool in_parentheses = scanner.Take('(');
  std::optional<std::string> text;
  bool is_plain = true;
  while (true) {
    scanner.SkipBlank(in_parentheses || in_dictionary);
    BATON_ASSIGN_OR_RETURN(const std::optional<Scanner::Literal> literal, scanner.TakeLiteral());
    if (!literal) break;
    text = text.value_or("") + literal->text;
    is_plain = is_plain && literal->is_plain;
  }
  if (in_parentheses && !scanner.Take(')')) return std::nullopt;
  scanner.SkipBlank(in_dictionary);
  const char next = scanner.Peek();
  const bool ends =
      in_dictionary ? next == ',' || next == '}' : scanner.AtEnd() || next == '\n' || next == ';';
  return ends && is_plain ? text : std::nullopt;
}

// What stands after '{', if it is a dictionary of strings.
absl::StatusOr<std::optional<std::map<std::string, std::string>>> TakeDictionary(Scanner& scanner) {
  std::map<std::string, std::string> items;
  while (true) {
    scanner.SkipBlank(/*lines=*/true);
    if (scanner.Take('}')) return items;
    BATON_ASSIGN_OR_RETURN(const std::optional<Scanner::Literal> key, scanner.TakeLiteral());
    scanner.SkipBlank(/*lines=*/true);
    if (!key || !key->is_plain || !scanner.Take(':')) return std::nullopt;
    BATON_ASSIGN_OR_RETURN(std::optional<std::string> text,
                           TakeStringExpression(scanner, /*in_dictionary=*/true));
    if (!text) return std::nullopt;
    items[key->text] = *std::move(text);
    scanner.Take(',');
  }
}

// A type: one name, as in "name: str = ...", or one with arguments, as in "name: Dict[str, str]".
absl::Status SkipType(Scanner& scanner) {
  scanner.SkipBlank(/*lines=*/false);
  scanner.TakeName();
  if (scanner.Take('[')) {
    while (!scanner.AtEnd() && !scanner.Take(']')) {
      BATON_RETURN_IF_ERROR(scanner.Skip());
    }
  }
  scanner.SkipBlank(/*lines=*/false);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> TopLevelStrings(
    absl::string_view source) {
  absl::flat_hash_map<std::string, std::string> strings;
  Scanner scanner(source);
  while (!scanner.AtEnd()) {
    const std::string name = scanner.AtLineStart() ? scanner.TakeName() : "";
    if (name.empty()) {
      BATON_RETURN_IF_ERROR(scanner.Skip());
      continue;
    }
    scanner.SkipBlank(/*lines=*/false);
    if (scanner.Take(':')) {
      BATON_RETURN_IF_ERROR(SkipType(scanner));
    }
    if (!scanner.Take('=')) continue;
    absl::erase_if(strings, [prefix = absl::StrCat(name, "["), &name](const auto& item) {
      return item.first == name || absl::StartsWith(item.first, prefix);
    });
    scanner.SkipBlank(/*lines=*/false);
    if (scanner.Take('{')) {
      BATON_ASSIGN_OR_RETURN(const auto items, TakeDictionary(scanner));
      if (!items) continue;
      for (const auto& [key, text] : *items)
        strings.emplace(absl::StrCat(name, "[", key, "]"), text);
      continue;
    }
    BATON_ASSIGN_OR_RETURN(std::optional<std::string> text,
                           TakeStringExpression(scanner, /*in_dictionary=*/false));
    if (text) strings.emplace(name, *std::move(text));
  }
  return strings;
}

}  // namespace baton::cli
