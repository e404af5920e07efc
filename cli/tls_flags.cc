#include "cli/tls_flags.h"

namespace baton::cli {
namespace {

void AddFile(CLI::App* command, const char* name, std::string& file, const char* help) {
  command->add_option(name, file, help)->type_name("FILE");
}

}  // namespace

void AddClusterTls(CLI::App* command, rpc::ClusterTls& tls) {
  AddFile(command, "--tls-cert-file", tls.files.certificate,
          "certificate to show to workers, in PEM [default: plain text]");
  AddFile(command, "--tls-key-file", tls.files.key, "its private key");
  AddFile(command, "--tls-ca-file", tls.files.ca, "the CAs that sign workers' certificates");
  command->add_option("--tls-server-name", tls.server_name,
                      "what workers' certificates must be for [default: their address]");
}

void AddCaFile(CLI::App* command, std::string& file) {
  AddFile(command, "--ca-file", file,
          "the CAs, or the very certificate, to trust where the URL says https, in PEM [default: "
          "the system's CAs]");
}

}  // namespace baton::cli
