#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace baton::router {

// Byte-pair encoding of one piece over raw bytes (the byte-to-unicode spelling of tokenizer files
// is undone by the loader). Immutable after Create; any number of threads may encode.
class BpeModel {
 public:
  struct Token {
    std::string bytes;
    int32_t id = 0;
  };
  struct Merge {
    std::string left;
    std::string right;
  };
  struct Spec {
    std::vector<Token> tokens;   // without added tokens; distinct bytes, distinct ids
    std::vector<Merge> merges;   // by descending priority
    bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  };

  // Buffers of one encoding call, reused from piece to piece.
  struct Scratch {
    std::vector<int32_t> ids;         // -1: merged into the symbol before
    std::vector<int32_t> next, prev;  // linked list of symbols, -1 at the ends
    std::vector<uint32_t> ranks;      // of the pair (symbol, next), kNoMerge without one
    std::vector<uint64_t> heap;       // rank << 32 | position, stale entries included
  };

  // InvalidArgument when one of the 256 bytes has no token, a merge names or yields an unknown
  // token, or a merge is repeated.
  static absl::StatusOr<BpeModel> Create(const Spec& spec);

  // Appends the ids of `piece` (shorter than 2 GiB). O(n log n), whatever the piece.
  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  struct Result {
    int32_t left, right, id;
  };

  absl::Status AddMerges(const Spec& spec,
                         const absl::flat_hash_map<std::string_view, int32_t>& ids);
  void AddWholePieces(const Spec& spec);
  void MergePiece(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;
  uint32_t RankOf(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Result> merges_;                            // index = rank
  absl::flat_hash_map<uint64_t, uint32_t> rank_of_pair_;  // left << 32 | right
  // Pieces whose encoding is known to be one token: most pieces of ordinary text end here.
  absl::flat_hash_map<std::string, int32_t> whole_pieces_;
};

}  // namespace baton::router
