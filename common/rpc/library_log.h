#pragma once

namespace baton::rpc {

// From now on what gRPC has to say goes to the log, at level debug: whatever matters to a caller
// comes back as a status, and is said once in our words. Why a TLS handshake failed is a warning,
// one in ten seconds: no caller is told what a server thinks of a client's certificate.
void QuietLibraryLog();

}  // namespace baton::rpc
