// Any text as a config.json: refused with a reason, or a configuration that the rest of the loader
// can work with.

#include "common/base/check.h"
#include "engine/model/config.h"
#include "engine/model/schema.h"

using namespace baton::engine;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::StatusOr<ModelConfig> config =
      ParseModelConfig(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(config.status()) ||
                absl::IsFailedPrecondition(config.status()))
        << config.status();
    BATON_CHECK(!config.status().message().empty());
    return 0;
  }
  const int layers = config->layers_of(LayerKind::kWindow) + config->layers_of(LayerKind::kCsa) +
                     config->layers_of(LayerKind::kHca);
  BATON_CHECK(layers == config->num_hidden_layers);
  constexpr int kFewTensors = 1 << 10;
  if (config->num_hidden_layers * config->n_routed_experts > kFewTensors) return 0;
  for (const bool fp4_experts : {false, true}) {
    for (const auto& [name, spec] : ExpectedTensors(*config, fp4_experts)) {
      for (const int64_t dimension : spec.shape) BATON_CHECK(dimension > 0) << name;
    }
  }
  BATON_CHECK(!CheckTensors(*config, {}).ok());
  return 0;
}
