#include "common/wakeup.h"

#include <cerrno>
#include <cstring>

#include <sys/eventfd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {

absl::StatusOr<Wakeup> Wakeup::Create() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event.valid()) return Wakeup(std::move(event));
  return absl::ResourceExhaustedError(
      absl::StrCat("what wakes a thread: eventfd: ", std::strerror(errno)));
}

// EAGAIN is all that can go wrong with either: the counter is full, which wakes as well, or it is
// zero already.
void Wakeup::Wake() const {
  BATON_CHECK(eventfd_write(event_.get(), 1) == 0 || errno == EAGAIN) << std::strerror(errno);
}

void Wakeup::Clear() const {
  eventfd_t wakes = 0;
  BATON_CHECK(eventfd_read(event_.get(), &wakes) == 0 || errno == EAGAIN) << std::strerror(errno);
}

}  // namespace baton
