#pragma once

#include <cstdint>

namespace baton::engine {

// Which of a layer's experts a rank holds: [first(E), first(E) + count(E)) of E, in all about
// equally many.
struct ExpertShare {
  int rank = 0;
  int ranks = 1;

  int first(int experts) const { return Begin(rank, experts); }
  int count(int experts) const { return Begin(rank + 1, experts) - Begin(rank, experts); }

 private:
  int Begin(int of, int experts) const { return static_cast<int>(int64_t{of} * experts / ranks); }
};

}  // namespace baton::engine
