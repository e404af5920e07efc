#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/config.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "engine/options_config.h"
#include "engine/recall/probe.h"
#include "engine/recall/probe_json.h"

// Answers prompts, one JSON object a line, until its input ends.

namespace baton::engine {
namespace {

// The most memory that this process ever had; 0 where /proc does not say.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view text = line;
    int64_t kilobytes = 0;
    if (absl::ConsumePrefix(&text, "VmHWM:") && absl::ConsumeSuffix(&text, "kB") &&
        absl::SimpleAtoi(text, &kilobytes)) {
      return kilobytes * 1024;
    }
  }
  return 0;
}

absl::Status Run(int argc, const char* const* argv) {
  OptionsConfig config;
  bool handoff = false;
  ConfigParser parser("baton-recall",
                      "Answers prompts on one engine and says what the indexer selected. Reads and "
                      "writes one JSON object a line; flags are those of a worker.");
  BindOptions(config, parser);
  parser.Add("handoff", &handoff, "hand each prompt over to a second cache, which decodes");
  BATON_ASSIGN_OR_RETURN(const ParseOutcome outcome, parser.Parse(argc, argv));
  if (outcome == ParseOutcome::kExit) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(InitLogging("recall", "info"));  // on stdout are answers alone
  ProbeOptions options;
  BATON_ASSIGN_OR_RETURN(options.engine, MakeEngineOptions(config));
  options.chunk_tokens = config.chunk_tokens;
  options.handoff = handoff;
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Probe> probe, Probe::Create(options));
  for (std::string line; std::getline(std::cin, line);) {
    BATON_ASSIGN_OR_RETURN(const ProbeRequest request, ParseProbeRequest(line));
    BATON_ASSIGN_OR_RETURN(const ProbeAnswer answer, probe->Ask(request));
    nlohmann::json json = ToJson(answer);
    json["peak_bytes"] = PeakBytes();
    std::cout << json.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::engine

int main(int argc, char** argv) {
  const absl::Status status = baton::engine::Run(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "baton-recall: " << status.message() << std::endl;
  return 1;
}
