#include "cli/top/key_presses.h"

#include <unistd.h>

#include "absl/strings/string_view.h"
#include "cli/terminal.h"

namespace baton::cli {

KeyPresses::KeyPresses() {
  termios terminal{};
  if (tcgetpgrp(kStdin) != getpgrp() || tcgetattr(kStdin, &terminal) != 0) return;
  const termios before = terminal;
  terminal.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  terminal.c_cc[VMIN] = 0;  // reads take what there is
  terminal.c_cc[VTIME] = 0;
  if (tcsetattr(kStdin, TCSANOW, &terminal) == 0) before_ = before;
}

KeyPresses::~KeyPresses() {
  if (before_) tcsetattr(kStdin, TCSANOW, &*before_);
}

bool KeyPresses::Pressed(char key) {
  if (!before_) return false;
  char keys[64];
  const ssize_t got = read(kStdin, keys, sizeof(keys));
  return got > 0 &&
         absl::string_view(keys, static_cast<size_t>(got)).find(key) != absl::string_view::npos;
}

}  // namespace baton::cli
