#include "router/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton::router {
namespace {

constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(const Spec& spec) {
  BpeModel model;
  absl::flat_hash_map<std::string_view, int32_t> ids;
  ids.reserve(spec.tokens.size());
  for (const Token& token : spec.tokens) ids.emplace(token.bytes, token.id);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto it = ids.find(std::string_view(&c, 1));
    if (it == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the vocabulary has no token for byte 0x",
                                                     absl::Hex(byte, absl::kZeroPad2)));
    }
    model.byte_ids_[byte] = it->second;
  }
  BATON_RETURN_IF_ERROR(model.AddMerges(spec, ids));
  model.AddWholePieces(spec);
  return model;
}

absl::Status BpeModel::AddMerges(const Spec& spec,
                                 const absl::flat_hash_map<std::string_view, int32_t>& ids) {
  merges_.reserve(spec.merges.size());
  rank_of_pair_.reserve(spec.merges.size());
  for (const Merge& merge : spec.merges) {
    const std::string result = merge.left + merge.right;
    const auto context = [&] { return absl::StrCat("merge ", merges_.size(), ": "); };
    std::array<int32_t, 3> found;
    for (size_t i = 0;
         const std::string_view part :
         {std::string_view(merge.left), std::string_view(merge.right), std::string_view(result)}) {
      const auto it = ids.find(part);
      if (it == ids.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            context(), "\"", absl::CHexEscape(std::string(part)), "\" is not in the vocabulary"));
      }
      found[i++] = it->second;
    }
    const auto rank = static_cast<uint32_t>(merges_.size());
    if (!rank_of_pair_.emplace(PairKey(found[0], found[1]), rank).second) {
      return absl::InvalidArgumentError(absl::StrCat(context(), "\"", absl::CHexEscape(merge.left),
                                                     "\" and \"", absl::CHexEscape(merge.right),
                                                     "\" were merged before"));
    }
    merges_.push_back({found[0], found[1], found[2]});
  }
  return absl::OkStatus();
}

void BpeModel::AddWholePieces(const Spec& spec) {
  Scratch scratch;
  std::vector<int32_t> ids;
  whole_pieces_.reserve(spec.tokens.size());
  for (const Token& token : spec.tokens) {
    ids.clear();
    if (!spec.ignore_merges) MergePiece(token.bytes, &scratch, &ids);
    if (spec.ignore_merges || (ids.size() == 1 && ids[0] == token.id)) {
      whole_pieces_.emplace(token.bytes, token.id);
    }
  }
}

void BpeModel::Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  const auto it = whole_pieces_.find(absl::string_view(piece.data(), piece.size()));
  if (it != whole_pieces_.end()) {
    ids->push_back(it->second);
  } else {
    MergePiece(piece, scratch, ids);
  }
}

uint32_t BpeModel::RankOf(int32_t left, int32_t right) const {
  const auto it = rank_of_pair_.find(PairKey(left, right));
  return it == rank_of_pair_.end() ? kNoMerge : it->second;
}

// Applies the best-ranked merge, leftmost first, until none is left. A heap entry is stale when its
// pair no longer has its rank; ranks are unique to pairs, so that test is enough.
void BpeModel::MergePiece(std::string_view piece, Scratch* scratch,
                          std::vector<int32_t>* out) const {
  const auto size = static_cast<int32_t>(piece.size());
  auto& [ids, next, prev, ranks, heap] = *scratch;
  ids.resize(size);
  next.resize(size);
  prev.resize(size);
  ranks.resize(size);
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    prev[i] = i - 1;
    next[i] = i + 1 < size ? i + 1 : -1;
  }
  const auto rank_pair_at = [&](int32_t i) {
    ranks[i] = next[i] < 0 ? kNoMerge : RankOf(ids[i], ids[next[i]]);
    if (ranks[i] != kNoMerge) heap.push_back(uint64_t{ranks[i]} << 32 | static_cast<uint32_t>(i));
    return ranks[i] != kNoMerge;
  };
  for (int32_t i = 0; i < size; ++i) rank_pair_at(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto i = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    if (ranks[i] != rank) continue;
    const int32_t absorbed = next[i];
    ids[i] = merges_[rank].id;
    next[i] = next[absorbed];
    if (next[i] >= 0) prev[next[i]] = i;
    ids[absorbed] = -1;
    ranks[absorbed] = kNoMerge;
    if (rank_pair_at(i)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (prev[i] >= 0 && rank_pair_at(prev[i])) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (int32_t i = size > 0 ? 0 : -1; i >= 0; i = next[i]) out->push_back(ids[i]);
}

}  // namespace baton::router
