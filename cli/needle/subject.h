#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/cluster.h"
#include "cli/needle/conversation.h"
#include "cli/needle/recall_process.h"
#include "nlohmann/json.hpp"
#include "router/tokenizer/tokenizer.h"

// What is asked for needles: an endpoint, a cluster started for it, or a single engine.

namespace baton::cli {

// What was said so far: user, assistant, user ...; the last is the user's.
using Messages = std::vector<std::string>;

struct Reply {
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t handoff_bytes = 0;
  double seconds = 0;
  nlohmann::json report;  // of a single engine
};

class Subject {
 public:
  virtual ~Subject() = default;
  // Greedily. `conversation` says where the needle is, for an engine that reports on it.
  virtual absl::StatusOr<Reply> Ask(const Messages& messages, const Conversation& conversation) = 0;
  // Ends what was started for it; an error when that did not end well.
  virtual absl::Status Stop() { return absl::OkStatus(); }
};

struct AskOptions {
  int max_tokens = 24;
  bool explain = false;                          // of engines: report every row
  std::string authorization = {}, ca_file = {};  // of endpoints: see HttpOptions
};

// An OpenAI-compatible endpoint. `model` empty: the first it lists.
absl::StatusOr<std::unique_ptr<Subject>> EndpointSubject(const std::string& url, std::string model,
                                                         const AskOptions& options);

// A router, a prefill and a decode worker on this machine.
absl::StatusOr<std::unique_ptr<Subject>> ClusterSubject(const ClusterOptions& cluster,
                                                        const AskOptions& options,
                                                        const std::function<bool()>& cancelled);

// baton-recall, by itself. The tokenizer outlives it.
absl::StatusOr<std::unique_ptr<Subject>> EngineSubject(const std::filesystem::path& binary,
                                                       const std::vector<std::string>& flags,
                                                       const router::Tokenizer& tokenizer,
                                                       const AskOptions& options);

}  // namespace baton::cli
