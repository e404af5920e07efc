#pragma once

namespace baton::rpc {

// From now on what gRPC has to say goes to the log, at level debug: whatever matters to a caller
// comes back as a status, and is said once in our words.
void QuietLibraryLog();

}  // namespace baton::rpc
