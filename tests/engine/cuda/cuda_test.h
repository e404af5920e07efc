#pragma once

#include <memory>
#include <string>

#include "engine/cache/storage.h"
#include "engine/model/backend.h"
#include "engine/model/checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/runtime/device.h"
#include "tests/engine/model/test_files.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {

// The small checkpoint on both backends.
struct BothBackends {
  static const Checkpoint& SharedCheckpoint() {
    static const Checkpoint* const checkpoint = new Checkpoint(*Checkpoint::Open(kModelDir));
    return *checkpoint;
  }
  static Backend& Get(const std::string& name) {
    static Backend* const cpu = MakeBackend("cpu")->release();
    static Backend* const cuda = MakeBackend("cuda")->release();
    return name == "cpu" ? *cpu : *cuda;
  }
  // With a top-k that makes short prompts select.
  static Model& ModelOf(const std::string& name) {
    static Model* const cpu = Load("cpu");
    static Model* const cuda = Load("cuda");
    return name == "cpu" ? *cpu : *cuda;
  }
  static CacheGeometry Geometry(const CacheOptions& options) {
    return *MakeCacheGeometry(SharedCheckpoint().config(), options);
  }

 private:
  static Model* Load(const std::string& name) {
    constexpr int kTopK = 64;
    return Get(name).LoadModel(SharedCheckpoint(), {.index_topk = kTopK})->release();
  }
};

}  // namespace baton::engine
