#pragma once

#include "common/cache_description.h"
#include "engine/engine.h"
#include "engine/model_identity.h"

namespace baton::engine {

// Of an engine that serves the model of this identity.
CacheDescription DescribeCache(const Engine& engine, const ModelIdentity& identity);

}  // namespace baton::engine
