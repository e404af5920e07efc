#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

// BATON_CHECK(cond) << "context": for broken invariants only, never for bad input. Prints file,
// line, condition and context, then aborts: a router routes round a dead worker, nobody can route
// round a wrong one. Standard library only, so kernels may use it.

namespace baton {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    stream_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << stream_.str() << std::endl;
    std::abort();
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both arms of BATON_CHECK's conditional the type void.
struct CheckVoidify {
  void operator&(std::ostream&) const {}
};

}  // namespace baton

#define BATON_CHECK(condition) \
  (condition)                  \
      ? (void)0                \
      : ::baton::CheckVoidify() & ::baton::CheckFailure(__FILE__, __LINE__, #condition).stream()
