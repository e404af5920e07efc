#include "prefill/config.h"

namespace baton::prefill {

void BindPrefillConfig(PrefillConfig& config, ConfigParser& parser) {
  worker::BindWorkerConfig(config, parser);
  parser.Group("Prefill");
  parser.Add("queue-limit", &config.queue_limit, "prompts that may wait; more are refused")
      .Range(1, 1 << 20);
  parser
      .Add("max-ungranted", &config.max_ungranted,
           "share of pages and slots held by prompts that one decode worker has not granted yet")
      .Range(1, 100)
      .Unit("percent");
  parser.Add("grant-timeout", &config.grant_timeout,
             "how long a started prompt waits for pages on its decode worker; then it is tried "
             "elsewhere");
  parser.Add("handoff-timeout", &config.handoff_timeout,
             "how long a computed, granted prompt may take to be received");
}

}  // namespace baton::prefill
