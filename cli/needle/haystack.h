#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"

// Text to lose a fact in: simple English sentences, and sentences that hold a passphrase. It is the
// language that models/needle-17m was trained on; any other model understands it too.

namespace baton::cli {

struct Needle {
  std::string city;
  std::string passphrase;  // "ZEBRA-4492-OMEGA"

  std::string BeforePassphrase() const;  // "The secret passphrase for Oslo is"
  std::string Sentence() const;
  std::string Question() const;
};

// A stream of sentences that is the same for the same seed, on every machine.
class Haystack {
 public:
  explicit Haystack(uint64_t seed) : random_(seed) {}

  std::string NextSentence();
  Needle NextNeedle();  // of a city that was not there before; there are 80

  // Sentences short enough to fill what little room is left.
  static const std::vector<std::string>& Refrains();

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  const std::string& OneOf(const std::vector<std::string>& words) {
    return words[Below(words.size())];
  }

  std::mt19937_64 random_;  // with distributions of our own: those of std differ between libraries
  absl::flat_hash_set<std::string> cities_;
};

}  // namespace baton::cli
