#pragma once

#include <string>

namespace baton::cli {

// Lines of a file descriptor, read without hiding that a signal came.
class LineReader {
 public:
  enum class Got { kLine, kEnd, kInterrupted };

  explicit LineReader(int fd) : fd_(fd) {}
  // The next line without its end; a last line may have none. After kInterrupted what had been read
  // of a line is still there.
  Got Next(std::string* line);

 private:
  const int fd_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace baton::cli
