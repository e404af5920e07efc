#include "cli/needle/conversation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::cli {
namespace {

// The chat format around a single user turn.
constexpr int64_t kTokensBefore = 2;  // beginning of sequence, user
constexpr int64_t kTokensAfter = 2;   // assistant, end of thinking
// Room below which a stretch of text is filled exactly instead of with the next sentence.
constexpr int64_t kExactBelow = 96;

// Fills room with sentences to the token.
class Filler {
 public:
  Filler(Haystack& haystack, const TextMeter& meter) : haystack_(haystack), meter_(meter) {
    for (const std::string& refrain : Haystack::Refrains()) {
      costs_.push_back(meter.Count(absl::StrCat(" ", refrain)));
    }
    // last_[n]: a refrain that ends some way of filling n tokens.
    last_.assign(kExactBelow + 1, kNone);
    for (int64_t n = 1; n <= kExactBelow; ++n) {
      for (size_t i = 0; i < costs_.size(); ++i) {
        // Another refrain every time, lest the text repeats one over and over.
        const size_t refrain = (i + static_cast<size_t>(n)) % costs_.size();
        const int64_t rest = n - costs_[refrain];
        if (rest == 0 || (rest > 0 && last_[rest] != kNone)) last_[n] = static_cast<int>(refrain);
      }
    }
  }

  // The most tokens up to `room` that can be filled.
  int64_t Fillable(int64_t room) const {
    int64_t n = std::max<int64_t>(room, 0);
    while (n > 0 && n <= kExactBelow && last_[n] == kNone) --n;
    return n;
  }

  // Sentences of exactly `room` tokens, which is fillable; returns what is missing of it, which is
  // not 0 only without a tokenizer.
  void Fill(int64_t room, std::vector<std::string>& sentences) {
    while (room > kExactBelow) {
      std::string sentence = haystack_.NextSentence();
      room -= meter_.Count(absl::StrCat(" ", sentence));
      sentences.push_back(std::move(sentence));
    }
    while (room > 0 && last_[room] != kNone) {
      const int refrain = last_[room];
      sentences.push_back(Haystack::Refrains()[refrain]);
      room -= costs_[refrain];
    }
  }

 private:
  static constexpr int kNone = -1;

  Haystack& haystack_;
  const TextMeter& meter_;
  std::vector<int64_t> costs_;  // of each refrain
  std::vector<int> last_;
};

struct Placed {
  Needle needle;
  int64_t at = 0;  // position wanted of its first token
  bool is_asked_last = false;
};

// The next position from `at` on whose residue is the cell's.
int64_t Aligned(int64_t at, const Cell& cell) {
  if (cell.modulus == 0) return at;
  const int64_t off = ((cell.residue - at) % cell.modulus + cell.modulus) % cell.modulus;
  return at + off;
}

struct Text {
  std::string text;
  size_t sentence_offset = 0;  // of the needle's sentence, in bytes
};

class Builder {
 public:
  Builder(const Cell& cell, const TextMeter& meter)
      : cell_(cell), meter_(meter), haystack_(cell.seed) {
    const int others = std::max(cell.distractors, cell.turns - 1);
    needles_.push_back({.needle = haystack_.NextNeedle(), .is_asked_last = true});
    for (int i = 0; i < others; ++i) needles_.push_back({.needle = haystack_.NextNeedle()});
  }

  // `shift`: by how much the text came out shorter than wanted when it was last tried.
  absl::StatusOr<Text> Build(int64_t shift) {
    Haystack haystack(cell_.seed + 1);
    Filler filler(haystack, meter_);
    const std::string question = absl::StrCat("\n\n", needles_[0].needle.Question());
    const int64_t room = cell_.tokens - kTokensBefore - kTokensAfter - meter_.Count(question);
    std::vector<Placed> order = Order(room);
    std::vector<std::string> sentences;
    int64_t position = 0;
    size_t needle_index = 0;
    for (Placed& placed : order) {
      const int64_t cost = Cost(placed.needle);
      const int64_t latest = room - Remaining(order, placed) - cost;
      int64_t at = std::min(std::max(placed.at, position), latest);
      if (placed.is_asked_last) at = Place(at + kTokensBefore, position, filler) - kTokensBefore;
      if (at < position) return TooShort();
      const int64_t gap = filler.Fillable(at - position + (position == 0 ? shift : 0));
      filler.Fill(gap, sentences);
      if (placed.is_asked_last) needle_index = sentences.size();
      sentences.push_back(placed.needle.Sentence());
      position = (position == 0 ? gap - shift : position + gap) + cost;
    }
    if (position > room) return TooShort();
    filler.Fill(filler.Fillable(room - position), sentences);
    Text text;
    for (size_t i = 0; i < sentences.size(); ++i) {
      if (i > 0) text.text += ' ';
      if (i == needle_index) text.sentence_offset = text.text.size();
      text.text += sentences[i];
    }
    text.text += question;
    return text;
  }

  const std::vector<Placed>& needles() const { return needles_; }

 private:
  int64_t Cost(const Needle& needle) const {
    return meter_.Count(absl::StrCat(" ", needle.Sentence()));
  }

  // All needles by position: the one asked last at the cell's depth, the others spread evenly.
  std::vector<Placed> Order(int64_t room) const {
    std::vector<Placed> order = needles_;
    order[0].at = static_cast<int64_t>(std::llround(cell_.depth / 100 * static_cast<double>(room)));
    const auto others = static_cast<double>(order.size() - 1);
    for (size_t i = 1; i < order.size(); ++i) {
      order[i].at =
          static_cast<int64_t>((static_cast<double>(i) - 0.5) / others * static_cast<double>(room));
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Placed& a, const Placed& b) { return a.at < b.at; });
    return order;
  }

  // Tokens of the needles behind `placed`.
  int64_t Remaining(const std::vector<Placed>& order, const Placed& placed) const {
    int64_t tokens = 0;
    for (const Placed* next = &placed + 1; next != order.data() + order.size(); ++next) {
      tokens += Cost(next->needle);
    }
    return tokens;
  }

  // A position of the right residue, from `at` on or, near the end, before it, up to which the gap
  // can be filled.
  int64_t Place(int64_t at, int64_t position, const Filler& filler) const {
    const int64_t step = std::max(cell_.modulus, 1);
    const auto fits = [&](int64_t candidate) {
      const int64_t gap = candidate - kTokensBefore - position;
      return gap >= 0 && filler.Fillable(gap) == gap;
    };
    int64_t candidate = Aligned(at, cell_) - step;
    while (candidate >= kTokensBefore + position && !fits(candidate)) candidate -= step;
    if (candidate >= kTokensBefore + position) return candidate;
    candidate = Aligned(at, cell_);
    while (!fits(candidate)) candidate += step;
    return candidate;
  }

  absl::Status TooShort() const {
    return absl::OutOfRangeError(absl::StrCat("a text of ", cell_.tokens,
                                              " tokens has no room for ", needles_.size(),
                                              " passphrases and a question"));
  }

  const Cell& cell_;
  const TextMeter& meter_;
  Haystack haystack_;
  std::vector<Placed> needles_;  // the one asked last first
};

}  // namespace

int64_t TextMeter::Count(absl::string_view text) const {
  if (tokenizer_ != nullptr) {
    return std::ssize(tokenizer_->Encode(std::string_view(text.data(), text.size())));
  }
  return static_cast<int64_t>(
      std::llround(static_cast<double>(text.size()) / characters_per_token_));
}

absl::StatusOr<Conversation> MakeConversation(const Cell& cell, const TextMeter& meter) {
  Builder builder(cell, meter);
  // The first sentence is spelt without a space before it, which may cost another number of tokens.
  absl::StatusOr<Text> text = builder.Build(0);
  if (!text.ok()) return text.status();
  const Needle& needle = builder.needles()[0].needle;
  if (meter.exact()) {
    const int64_t wanted = cell.tokens - kTokensBefore - kTokensAfter;
    const int64_t shift = wanted - meter.Count(text->text);
    if (shift != 0) text = builder.Build(shift);
    if (!text.ok()) return text.status();
  }
  Conversation conversation;
  const auto turns = static_cast<size_t>(cell.turns);
  for (size_t turn = 1; turn < turns; ++turn) {
    const Needle& other = builder.needles()[turn].needle;
    conversation.turns.push_back({other.Question(), other.passphrase});
  }
  conversation.turns.push_back({needle.Question(), needle.passphrase});
  const std::string question = absl::StrCat("\n\n", needle.Question());
  const std::string body = text->text.substr(0, text->text.size() - question.size());
  conversation.turns[0].text = absl::StrCat(body, "\n\n", conversation.turns[0].text);
  if (meter.exact()) {
    // What stands before a space is encoded by itself.
    const size_t end = text->sentence_offset;
    const absl::string_view before = absl::string_view(body).substr(0, end == 0 ? 0 : end - 1);
    const std::string space = end == 0 ? "" : " ";
    const int64_t begin = kTokensBefore + meter.Count(before);
    conversation.sentence_begin = begin;
    conversation.answer_begin = begin + meter.Count(absl::StrCat(space, needle.BeforePassphrase()));
    conversation.answer_end =
        begin + meter.Count(absl::StrCat(space, needle.BeforePassphrase(), " ", needle.passphrase));
  }
  return conversation;
}

}  // namespace baton::cli
