#pragma once

#include <source_location>

namespace baton::kernels {

// What a CUDA runtime call returned (cudaError_t). Anything but success ends the process with the
// call, the error's name and the place: most errors stick to the context, so nothing can be
// computed after one. `call` names the call for the reader.
void CheckCuda(int error, const char* call,
               std::source_location where = std::source_location::current());

// The same for the launch just made; errors of earlier, asynchronous work show here too.
void CheckLaunch(const char* kernel, std::source_location where = std::source_location::current());

}  // namespace baton::kernels
