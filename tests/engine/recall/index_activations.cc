#include "tests/engine/recall/index_activations.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/needle/conversation.h"
#include "common/base/check.h"
#include "engine/model/backend.h"
#include "engine/model/problems.h"
#include "engine/model/tensor_reader.h"
#include "router/chat/renderer.h"

namespace baton::engine {
namespace {

constexpr int64_t kTextTokens = 4096;
constexpr int64_t kChunkTokens = 1024;
const std::string kModel = BATON_SOURCE_DIR "/models/needle-17m";

class Texts {
 public:
  Texts() : tokenizer_(*router::Tokenizer::Load(kModel + "/tokenizer.json")) {}

  // A prompt of exactly kTextTokens, and a fact to be asked for somewhere in it.
  std::vector<int32_t> Prompt(uint64_t seed) const {
    const auto conversation = *cli::MakeConversation(
        {.tokens = kTextTokens, .depth = static_cast<double>(seed % 100), .seed = seed},
        cli::TextMeter(&tokenizer_));
    const std::vector<router::Message> messages = {
        router::TextMessage(router::Role::kUser, conversation.turns[0].text)};
    std::vector<int32_t> prompt =
        tokenizer_.Encode(*router::RenderPrompt(messages, router::ChatPrompts{}, {}));
    BATON_CHECK(std::ssize(prompt) >= kTextTokens - 3) << prompt.size();
    prompt.resize(kTextTokens, prompt.back());
    return prompt;
  }

 private:
  const router::Tokenizer tokenizer_;
};

}  // namespace

CapturedIndex CaptureIndex(int64_t entries, int rows) {
  const Checkpoint checkpoint = *Checkpoint::Open(kModel);
  CapturedIndex captured{.config = checkpoint.config(), .layers = {}};
  Problems problems;
  for (int layer = 0; layer < captured.config.num_hidden_layers; ++layer) {
    if (captured.config.layer_kind(layer) != LayerKind::kCsa) continue;
    const TensorReader tensors(checkpoint, absl::StrCat("layers.", layer, "."), problems);
    captured.layers[layer].norm = tensors.Vector("attn.indexer.compressor.norm.weight");
  }
  const auto backend = *MakeBackend("cpu");
  const auto model = *backend->LoadModel(checkpoint, {});
  const CacheOptions options{.page_tokens = 128, .pages = kTextTokens / 128, .slots = 1};
  const auto cache = *backend->NewCache(*MakeCacheGeometry(captured.config, options));
  std::vector<int32_t> pages(options.pages);
  std::iota(pages.begin(), pages.end(), 0);

  const Texts texts;
  ForwardObserver observer;
  observer.on_index_entries = [&](int layer, int64_t, kernels::MatrixView<const BFloat16> pooled) {
    std::vector<BFloat16>& all = captured.layers.at(layer).pooled;
    all.insert(all.end(), pooled.data, pooled.data + pooled.rows * pooled.cols);
  };
  for (int64_t text = 0; text < entries * kCsaRatio / kTextTokens; ++text) {
    const std::vector<int32_t> prompt = texts.Prompt(static_cast<uint64_t>(text));
    for (int64_t start = 0; start < kTextTokens; start += kChunkTokens) {
      const bool is_last = start + kChunkTokens == kTextTokens;
      observer.on_index_query = nullptr;
      if (is_last && text < rows) {
        observer.on_index_query = [&](int layer, int64_t row, std::span<const BFloat16> q,
                                      std::span<const BFloat16> w) {
          if (row != kChunkTokens - 1) return;
          IndexActivations& activations = captured.layers.at(layer);
          activations.q.insert(activations.q.end(), q.begin(), q.end());
          activations.w.insert(activations.w.end(), w.begin(), w.end());
        };
      }
      const SequenceChunk chunk{.tokens = std::span(prompt).subspan(start, kChunkTokens),
                                .start = start,
                                .pages = pages,
                                .slot = 0,
                                .first_logits_row = static_cast<int>(kChunkTokens),
                                .first_streams_row = static_cast<int>(kChunkTokens)};
      model->Forward({&chunk, 1}, *cache, observer);
    }
  }
  return captured;
}

void RepeatEntries(int64_t entries, CapturedIndex& captured) {
  const auto values = static_cast<size_t>(entries * ModelConfig::kIndexHeadDim);
  for (auto& [layer, activations] : captured.layers) {
    std::vector<BFloat16>& pooled = activations.pooled;
    const size_t period = pooled.size();
    pooled.resize(values);
    for (size_t i = period; i < values; ++i) pooled[i] = pooled[i - period];
  }
}

}  // namespace baton::engine
