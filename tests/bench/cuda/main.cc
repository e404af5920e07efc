#include "tests/bench/cuda/harness.h"

int main(int argc, char** argv) { return baton::kernels::cuda::RunBenches(argc, argv); }
