// Any bytes as a safetensors file: refused with a reason, or views that lie inside of the bytes and
// tile the data section.

#include "common/base/check.h"
#include "engine/model/safetensors.h"

using baton::engine::SafetensorsFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(bytes);
  if (!file.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(file.status())) << file.status();
    return 0;
  }
  size_t covered = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    BATON_CHECK(file->Find(name) == &tensor);
    BATON_CHECK(!DescribeTensor(tensor.type, tensor.shape).empty());
    int64_t elements = 1;
    for (const int64_t dimension : tensor.shape) elements *= dimension;
    BATON_CHECK(elements == tensor.elements()) << name;
    BATON_CHECK(tensor.bytes.data() >= bytes.data() &&
                tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size())
        << name;
    covered += tensor.bytes.size();
  }
  BATON_CHECK(covered <= size);
  return 0;
}
