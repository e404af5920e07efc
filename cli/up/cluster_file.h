#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/cluster.h"

namespace baton::cli {

// "--chunk-tokens", "cluster.yaml:14".
using FlagPlaces = std::vector<std::pair<std::string, std::string>>;

// A cluster in one YAML file. Under `workers`, `prefill`, `decode` and `router` stand flags of
// these programs, '-' or '_' between words, but for `count`, the number of workers:
//
//   model_dir: models/needle-17m
//   ranks: 1                               # processes of a worker
//   devices: [0, 1]                        # CUDA devices, one a process in turn
//   workers: {device: cpu, pages: 512}     # both roles
//   prefill: {count: 2, chunk_tokens: 512}
//   decode: {count: 2}
//   router: {listen: "127.0.0.1:8000"}
//
// Adds to `options` what the text says. INVALID_ARGUMENT names `source` and line; whether a flag
// exists is for the program to say.
absl::Status ReadClusterFile(const std::string& text, const std::string& source,
                             ClusterOptions& options, FlagPlaces& places);

// `error`, which a program may have made of its flags, and where those that it names stand.
absl::Status WithPlaces(const absl::Status& error, const FlagPlaces& places);

}  // namespace baton::cli
