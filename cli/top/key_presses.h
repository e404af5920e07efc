#pragma once

#include <optional>

#include <termios.h>

namespace baton::cli {

// While it lives, what is typed can be read key by key and is not shown; Ctrl-C stays the signal.
// Where stdin is no terminal, or one that a job in the foreground has, there are no keys.
class KeyPresses {
 public:
  KeyPresses();
  ~KeyPresses();  // as it was before
  KeyPresses(const KeyPresses&) = delete;
  KeyPresses& operator=(const KeyPresses&) = delete;

  bool possible() const { return before_.has_value(); }
  // Whether the key is among those that have been pressed since the last call. Returns at once.
  bool Pressed(char key);

 private:
  std::optional<termios> before_;
};

}  // namespace baton::cli
