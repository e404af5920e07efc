#pragma once

#include "common/ids.h"

namespace baton::kvtransfer {

// One attempt at a hand-off between two processes: nothing of another attempt or of another
// incarnation of either side belongs to it.
struct HandoffKey {
  AttemptId attempt;
  Incarnation sender = 0;
  Incarnation receiver = 0;

  friend bool operator==(const HandoffKey&, const HandoffKey&) = default;
};

}  // namespace baton::kvtransfer
