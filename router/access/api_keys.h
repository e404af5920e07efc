#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/file_watch.h"
#include "common/mutex.h"

namespace baton::router {

// The keys that let a client in: one a line of a file, in which empty lines and those that begin
// with '#' mean nothing. A file that has changed is read again within a second or so; while it
// cannot be read, or holds what is no key, the keys stay as they were, that is logged, and each
// second it is tried again. Thread-safe.
class ApiKeys {
 public:
  // NOT_FOUND, DATA_LOSS: see ReadFile. INVALID_ARGUMENT, naming file and line: not a key of 16 to
  // 256 printable characters without spaces, no key at all, no regular file, or more than 1 MiB.
  // `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Load(std::string path,
                                                       const Clock& clock = Clock::Real());

  // Whether `authorization` is "Bearer " and one of the keys. How long it takes says nothing of how
  // much of a key is right.
  bool Accepts(std::string_view authorization) const;

 private:
  ApiKeys(std::string path, const Clock& clock) : path_(std::move(path)), watch_({path_}, clock) {}
  absl::Status Read() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadIfChanged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  mutable Mutex mutex_;
  mutable FileWatch watch_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::string> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
