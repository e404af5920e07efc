#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace baton::kvtransfer {

// The ordering rule of a lane: numbers are decided in any order and issued strictly in theirs;
// those that were declined are passed over. Pure; each end has one for each generation.
template <typename Group>
class IssueOrder {
 public:
  // False when the number was decided already: the peer breaks the protocol.
  bool Commit(uint64_t sequence, Group group) { return Decide(sequence, std::move(group)); }
  bool Decline(uint64_t sequence) { return Decide(sequence, std::nullopt); }

  // The next group to be issued, with its number; nullopt while an earlier one is undecided.
  std::optional<std::pair<uint64_t, Group>> TakeNext() {
    while (!decided_.empty() && decided_.begin()->first == next_) {
      std::optional<Group> group = std::move(decided_.begin()->second);
      decided_.erase(decided_.begin());
      ++next_;
      if (group.has_value()) return std::pair(next_ - 1, *std::move(group));
    }
    return std::nullopt;
  }

 private:
  bool Decide(uint64_t sequence, std::optional<Group> group) {
    return sequence >= next_ && decided_.try_emplace(sequence, std::move(group)).second;
  }

  uint64_t next_ = 1;
  std::map<uint64_t, std::optional<Group>> decided_;  // not issued yet
};

}  // namespace baton::kvtransfer
