#include "cli/needle/conversation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

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

  // Sentences of exactly `room` tokens, which is fillable. Without a tokenizer, whose counts add
  // up, some tokens of it may be missing.
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
  std::string text;            // with the first question
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
    const std::string question = absl::StrCat("\n\n", FirstAsked().Question());
    // An empty line may be one token with the full stop before it.
    const std::string& before = Haystack::Refrains()[0];
    const int64_t question_cost =
        meter_.Count(absl::StrCat(before, question)) - meter_.Count(before);
    const int64_t room = cell_.tokens - kTokensBefore - kTokensAfter - question_cost;
    std::vector<Placed> order = Order(room);
    std::vector<std::string> sentences;
    int64_t position = 0;
    size_t needle_index = 0;
    for (Placed& placed : order) {
      const int64_t cost = Cost(placed.needle);
      const int64_t latest = room - Remaining(order, placed) - cost;
      int64_t at = std::min(std::max(placed.at, position), latest);
      const int64_t extra = position == 0 ? shift : 0;
      if (placed.is_asked_last) at = Place(at, position - extra, filler);
      if (at < position - extra) return TooShort();
      const int64_t gap = filler.Fillable(at - position + extra);
      filler.Fill(gap, sentences);
      if (placed.is_asked_last) needle_index = sentences.size();
      sentences.push_back(placed.needle.Sentence());
      position += gap - extra + cost;
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

  const Needle& FirstAsked() const { return needles_[cell_.turns > 1 ? 1 : 0].needle; }
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

  // A place near `at` of the right residue up to which the gap from `begin` can be filled: before
  // it, or if there is none after it.
  int64_t Place(int64_t at, int64_t begin, const Filler& filler) const {
    const int64_t step = std::max(cell_.modulus, 1);
    const auto fits = [&](int64_t place) {
      return place >= begin && filler.Fillable(place - begin) == place - begin;
    };
    const int64_t aligned = Aligned(at + kTokensBefore, cell_) - kTokensBefore;
    for (int64_t place = aligned; place >= begin; place -= step) {
      if (fits(place)) return place;
    }
    int64_t place = aligned + step;
    while (!fits(place)) place += step;
    return place;
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
  absl::StatusOr<Text> text = builder.Build(0);
  // The first sentence is spelt without a space before it, which may cost another number of tokens.
  constexpr int kAttempts = 6;
  int64_t shift = 0;
  for (int attempt = 0; attempt < kAttempts && text.ok() && meter.exact(); ++attempt) {
    const int64_t missing = cell.tokens - kTokensBefore - kTokensAfter - meter.Count(text->text);
    if (missing == 0) break;
    shift += missing;
    text = builder.Build(shift);
  }
  if (!text.ok()) return text.status();
  const Needle& needle = builder.needles()[0].needle;
  Conversation conversation;
  for (int turn = 1; turn < cell.turns; ++turn) {
    const Needle& other = builder.needles()[turn].needle;
    conversation.turns.push_back({other.Question(), other.passphrase});
  }
  conversation.turns.push_back({needle.Question(), needle.passphrase});
  conversation.turns[0].text = text->text;
  if (meter.exact()) {
    // What stands before a space is encoded by itself.
    const size_t end = text->sentence_offset;
    const absl::string_view before =
        absl::string_view(text->text).substr(0, end == 0 ? 0 : end - 1);
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
