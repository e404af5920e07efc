#include "common/rpc/worker_main.h"
#include "decode/worker.h"

int main(int argc, char** argv) {
  return baton::rpc::WorkerMain<baton::decode::DecodeWorker>(
      {.role = "decode",
       .description =
           "Decodes sequences that prefill workers hand over, or that it computes itself.",
       .bind = baton::decode::BindDecodeConfig},
      argc, argv);
}
