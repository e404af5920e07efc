#include "common/process_main.h"
#include "decode/worker.h"

int main(int argc, char** argv) {
  return baton::ProgramMain<baton::decode::DecodeConfig, baton::worker::Worker>(
      {.role = "decode",
       .description =
           "Decodes sequences that prefill workers hand over, or that it computes itself.",
       .bind = baton::decode::BindDecodeConfig,
       .start = baton::decode::StartDecodeWorker,
       .drain = baton::worker::DrainAndStop},
      argc, argv);
}
