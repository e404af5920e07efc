#include "decode/config.h"

namespace baton::decode {

void BindDecodeConfig(DecodeConfig& config, ConfigParser& parser) {
  worker::BindWorkerConfig(config, parser);
  parser.Group("Decode");
  parser
      .Add("queue-limit", &config.queue_limit,
           "requests that may wait, from admission until they run; more are refused")
      .Range(1, 1 << 20);
  parser
      .Add("queue-limit-per-prefill", &config.queue_limit_per_prefill,
           "of them, those that wait for one prefill worker: a stuck one fills no more")
      .Range(1, 1 << 20);
  parser
      .Add("local-prefill-tokens", &config.local_prefill_tokens,
           "a prompt that is cached here but for so many tokens is not handed over; 0: all are")
      .Range(0, 1 << 20)
      .Unit("tokens");
  parser.Add("accept-timeout", &config.accept_timeout,
             "how long a prefill worker may take to accept a request before the next is asked");
  parser.Add(
      "queue-timeout", &config.queue_timeout,
      "how long a request may wait for prefill and pages, or see no progress of its prefill");
  parser.Add("handoff-timeout", &config.handoff_timeout,
             "how long a computed hand-off may make no progress");
  parser
      .Add("growth-tokens", &config.growth_tokens,
           "output tokens that pages are reserved for when a sequence is admitted")
      .Range(1, 1 << 20)
      .Unit("tokens");
}

}  // namespace baton::decode
