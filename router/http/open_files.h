#pragma once

namespace baton::router {

// Raises this process's limit on open files to `files`, as far as the administrator allows; what is
// missing is logged: beyond it connections wait unanswered, those to workers among them.
void EnsureOpenFiles(int files);

}  // namespace baton::router
