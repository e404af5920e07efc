#pragma once

#include <vector>

#include "absl/status/status.h"

namespace baton {

// All that is wrong with something, for whoever would not like to hear of it piece by piece.
class ErrorList {
 public:
  // OK is none. What ToStatus of another list says joins this one piece by piece; context that has
  // been put in front of it meanwhile is lost.
  void Add(const absl::Status& error);

  // OK without any. One as it is; several one a line, under the code of the first.
  absl::Status ToStatus() const;

 private:
  std::vector<absl::Status> errors_;
};

}  // namespace baton
