#include "cli/pipe.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace baton::cli {

absl::StatusOr<Pipe> Pipe::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  return Pipe{.read_end = Fd(ends[0]), .write_end = Fd(ends[1])};
}

}  // namespace baton::cli
