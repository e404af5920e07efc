#include "common/process_main.h"
#include "decode/worker.h"

int main(int argc, char** argv) {
  return baton::ProgramMain<baton::decode::DecodeConfig, baton::worker::Worker>(
      {.role = "decode",
       .description =
           "Decodes sequences that prefill workers hand over, or that it computes itself.",
       .bind = baton::decode::BindDecodeConfig,
       .inspect = [](const baton::decode::DecodeConfig& config,
                     baton::ErrorList& errors) { baton::worker::InspectConfig(config, errors); },
       .start = baton::decode::StartDecodeWorker,
       .drain = baton::worker::DrainAndStop},
      argc, argv);
}
