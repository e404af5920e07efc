#include "common/rpc/worker_main.h"
#include "prefill/worker.h"

int main(int argc, char** argv) {
  return baton::rpc::WorkerMain<baton::prefill::PrefillWorker>(
      {.role = "prefill",
       .description = "Computes prompts for decode workers and hands their caches over.",
       .bind = baton::prefill::BindPrefillConfig},
      argc, argv);
}
