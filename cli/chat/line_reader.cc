#include "cli/chat/line_reader.h"

#include <cerrno>

#include <unistd.h>

namespace baton::cli {

LineReader::Got LineReader::Next(std::string* line) {
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      *line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line->empty() && line->back() == '\r') line->pop_back();
      return Got::kLine;
    }
    if (at_end_) {
      if (buffer_.empty()) return Got::kEnd;
      buffer_ += '\n';
      continue;
    }
    char bytes[4096];
    const ssize_t got = read(fd_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) return Got::kInterrupted;
    if (got <= 0) at_end_ = true;
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace baton::cli
