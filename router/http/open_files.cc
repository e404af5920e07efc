#include "router/http/open_files.h"

#include <algorithm>

#include <sys/resource.h>

#include "common/log.h"

namespace baton::router {

void EnsureOpenFiles(int files) {
  const auto wanted = static_cast<rlim_t>(files);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    spdlog::warn("max-connections needs {} open files, {} are allowed (ulimit -n)", files,
                 limit.rlim_cur);
  }
}

}  // namespace baton::router
