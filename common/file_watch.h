#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"

namespace baton {

// Tells when a file may have been written, or a link to it been turned, since it was last read
// well: by time and size, and looking at most once a second. Not thread-safe.
class FileWatch {
 public:
  // Of the files as they are now: to be made before they are read. `clock` outlives it.
  explicit FileWatch(std::vector<std::string> paths, const Clock& clock = Clock::Real());

  // Whether one of them is another than when it was last taken, or at the beginning. Said at every
  // look until it is taken: what cannot be read now may be readable the next time.
  bool Changed();
  // They have been read as Changed saw them last, or later, and were good.
  void Taken();

  // Reads, if they have changed, and takes them unless that fails. What there is to tell: that it
  // went well, or an error that the try before did not have. What cannot be read is tried once a
  // second, until somebody mends it.
  std::optional<absl::Status> ReadIfChanged(const std::function<absl::Status()>& read);

 private:
  struct Version {
    std::filesystem::file_time_type written;
    uintmax_t bytes = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };
  std::vector<Version> Look() const;

  const std::vector<std::string> paths_;
  const Clock& clock_;
  Clock::TimePoint looked_at_;
  std::vector<Version> taken_;
  std::vector<Version> seen_;
  absl::Status last_read_;
};

}  // namespace baton
