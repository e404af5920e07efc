#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

// Which pass a group runs next, as a pure function of what its ranks said: the state of rank 0.

namespace baton::engine {

// The passes that all ranks run together, in the order in which they go first.
enum class PassKind : uint8_t {
  kStart,  // computes nothing: all have loaded their weights
  kDraft,  // the MTP block
  kTrunk,
};

struct Wish {
  static constexpr int64_t kResting = -1;
  static constexpr int64_t kMaxRows = 4096;       // of a pass, whatever computes it
  static constexpr int64_t kMaxStepRows = 256;    // of one that may grow
  static constexpr int64_t kMaxSequenceRows = 8;  // in it: the newest token and its drafts

  PassKind kind = PassKind::kTrunk;
  int64_t rows = 0;  // kResting: wants nothing
  // A decoding step may grow, so that those of all ranks have one shape: these are the most rows
  // and the most positions of a sequence. sequence_rows is 0 of a pass that is as it is.
  int64_t sequence_rows = 0;
  int64_t positions = 0;
};

// One pass of all ranks.
struct Step {
  uint64_t number = 0;  // 1 for the first
  PassKind kind = PassKind::kStart;
  std::vector<int64_t> rows = {};  // of each rank; 0: it joins for the sake of others
  // The largest wished for if all who bring rows may grow, to equally many rows; else 0.
  int64_t sequence_rows = 0;
  int64_t positions = 0;

  bool same_shape() const { return sequence_rows > 0; }
  int64_t total() const { return begin(rows.size()); }
  // Rows of the ranks before `rank`: where its own begin among those of all.
  int64_t begin(size_t rank) const {
    return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rank),
                           int64_t{0});
  }
};

// Whether a step, within the bounds of frame.h, lets the rank that wished join, or run the pass
// that it wished for.
bool Grants(const Step& step, size_t rank, const Wish& wish);

class StepBoard {
 public:
  explicit StepBoard(int ranks) : said_(static_cast<size_t>(ranks)) {}

  // What a rank says holds for one step: the one after `after`, the last that it knows of. Said too
  // late it is void; the rank says it again.
  void Say(int rank, uint64_t after, const Wish& wish) {
    if (after == decided_) said_[static_cast<size_t>(rank)] = wish;
  }

  // The next step once all ranks have spoken and one wants something. Nobody has spoken afterwards.
  std::optional<Step> Decide();

  uint64_t decided() const { return decided_; }
  // Ranks that have not spoken since the last step.
  std::vector<int> Busy() const;

 private:
  uint64_t decided_ = 0;
  std::vector<std::optional<Wish>> said_;
};

}  // namespace baton::engine
