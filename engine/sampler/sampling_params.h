#pragma once

#include "common/sampling_params.h"

namespace baton::engine {

using baton::SamplingParams;

}  // namespace baton::engine
