#include "engine/cuda/scratch.h"

#include <fstream>
#include <iterator>
#include <string>

#include "engine/cuda/cuda_model.h"
#include "engine/model/config.h"
#include "gtest/gtest.h"

namespace baton::engine::cuda {
namespace {

constexpr int64_t kMiB = 1 << 20;

ModelConfig ShapeOf(const std::string& name) {
  std::ifstream file(BATON_SOURCE_DIR "/models/shapes/" + name + "/config.json");
  return *ParseModelConfig(std::string(std::istreambuf_iterator<char>(file), {}));
}

// What a step needs beside weights and cache, streams included, whatever a context's length.
TEST(ScratchTest, IntermediatesOfFlashTakeHalfAGiB) {
  const ModelConfig flash = ShapeOf("flash");
  EXPECT_EQ(flash.max_position_embeddings, 1 << 20);
  EXPECT_LE(CudaModel::TransientBytes(flash, {}), 512 * kMiB);
  EXPECT_LE(CudaModel::TransientBytes(flash, {.max_rows = 1088}), 320 * kMiB);
}

TEST(ScratchTest, FewerRowsTakeNoMore) {
  for (const char* name : {"flash", "pro"}) {
    const ModelConfig config = ShapeOf(name);
    int64_t fewer = 0;
    for (const int64_t rows : {16, 256, 272, 1024, 2048, 4096}) {
      const int64_t bytes = Scratch::Plan(config, config.index_topk, rows).bytes();
      EXPECT_GE(bytes, fewer) << name << ", " << rows << " rows";
      fewer = bytes;
    }
  }
}

// Rows of a call that is no multiple of 16, and that is larger or smaller than passes are.
TEST(ScratchTest, APassHasRoomForWhatACallBrings) {
  const ModelConfig flash = ShapeOf("flash");
  const auto bytes = [&](int64_t max_rows) {
    return CudaModel::TransientBytes(flash, {.max_rows = max_rows});
  };
  EXPECT_EQ(bytes(1), bytes(kMaxStepRows));
  EXPECT_EQ(bytes(1009), bytes(1024));
  EXPECT_EQ(bytes(1 << 20), bytes(kMaxPassRows));
  EXPECT_EQ(bytes(0), bytes(kMaxPassRows));
}

}  // namespace
}  // namespace baton::engine::cuda
