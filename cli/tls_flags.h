#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "common/rpc/credentials.h"

namespace baton::cli {

// --tls-cert-file, --tls-key-file, --tls-ca-file and --tls-server-name: what this program shows to
// workers that want mutual TLS and looks for in theirs, as their own flags of these names.
void AddClusterTls(CLI::App* command, rpc::ClusterTls& tls);

// --ca-file: whom to trust where a URL says https.
void AddCaFile(CLI::App* command, std::string& file);

}  // namespace baton::cli
