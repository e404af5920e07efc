#include "common/file_watch.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace baton {
namespace {

constexpr std::chrono::seconds kLookAgain{1};

}  // namespace

FileWatch::FileWatch(std::vector<std::string> paths, const Clock& clock)
    : paths_(std::move(paths)),
      clock_(clock),
      looked_at_(clock.Now()),
      taken_(Look()),
      seen_(taken_) {}

std::vector<FileWatch::Version> FileWatch::Look() const {
  std::vector<Version> versions;
  for (const std::string& path : paths_) {
    std::error_code unknown;  // whoever reads the file says what is wrong
    versions.push_back({.written = std::filesystem::last_write_time(path, unknown),
                        .bytes = std::filesystem::file_size(path, unknown)});
  }
  return versions;
}

bool FileWatch::Changed() {
  const Clock::TimePoint now = clock_.Now();
  if (now - looked_at_ < kLookAgain) return false;
  looked_at_ = now;
  seen_ = Look();
  return seen_ != taken_;
}

void FileWatch::Taken() { taken_ = seen_; }

std::optional<absl::Status> FileWatch::ReadIfChanged(const std::function<absl::Status()>& read) {
  if (!Changed()) return std::nullopt;
  const absl::Status before = std::exchange(last_read_, read());
  if (last_read_.ok()) {
    Taken();
  } else if (last_read_ == before) {
    return std::nullopt;
  }
  return last_read_;
}

}  // namespace baton
