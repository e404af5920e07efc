#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bf16.h"
#include "engine/model/safetensors.h"

// Reference outputs as README.md describes them, copied out of a safetensors file.

namespace baton::golden {

struct GoldenCase {
  std::string name;  // "n300"
  std::vector<int32_t> ids;
  std::vector<int32_t> out;   // greedy continuation
  std::vector<float> logits;  // [out.size(), vocabulary]
  // CSA layer -> entries selected at the last decode step that ran, ascending. Empty below CSA.
  std::map<int, std::vector<int32_t>> selected;
  bool must_match = false;  // the reference found the needle, so greedy tokens must be equal
};

// Every position of one prompt, layer by layer.
struct GoldenTrace {
  std::vector<int32_t> ids;
  std::vector<float> logits;      // [ids.size(), vocabulary]
  std::vector<float> mtp_logits;  // [ids.size(), vocabulary]; the last row pairs with its own token
  std::map<int, std::vector<BFloat16>> streams;  // layer -> [ids.size(), streams, hidden]
};

struct GoldenFile {
  std::vector<GoldenCase> cases;  // by prompt length
  std::optional<GoldenTrace> trace;
};

// InvalidArgument names the tensor that is missing, of the wrong type, or of the wrong size.
absl::StatusOr<GoldenFile> LoadGoldenFile(const std::string& path, int vocab_size);

}  // namespace baton::golden
