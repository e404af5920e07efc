#include "common/fd.h"

#include <unistd.h>

namespace baton {

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace baton
