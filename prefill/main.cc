#include "common/process_main.h"
#include "prefill/worker.h"

int main(int argc, char** argv) {
  return baton::ProgramMain<baton::prefill::PrefillConfig, baton::worker::Worker>(
      {.role = "prefill",
       .description = "Computes prompts for decode workers and hands their caches over.",
       .bind = baton::prefill::BindPrefillConfig,
       .inspect = [](const baton::prefill::PrefillConfig& config,
                     baton::ErrorList& errors) { baton::worker::InspectConfig(config, errors); },
       .start = baton::prefill::StartPrefillWorker,
       .drain = baton::worker::DrainAndStop},
      argc, argv);
}
