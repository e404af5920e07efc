#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/mmap_file.h"

// One safetensors file: u64 header length (little endian), JSON header, then the tensors' bytes.

namespace baton::engine {

enum class TensorType : uint8_t { kBf16, kF32, kF8E4M3, kF8E8M0, kI8, kI32, kI64 };

absl::string_view TensorTypeName(TensorType type);  // as in the header: "BF16", "F8_E4M3", ...
int64_t TensorTypeBytes(TensorType type);

struct TensorView {
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, little endian; not necessarily aligned

  int64_t elements() const;  // 1 for a scalar (empty shape)
};

// "F32 [24, 1024]"
std::string DescribeTensor(TensorType type, std::span<const int64_t> shape);

class SafetensorsFile {
 public:
  // Maps and checks the file: a header inside the file, known types, sizes that equal shape x type,
  // tensors that tile the data section without overlap or gap. InvalidArgument says what is wrong.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // The same over bytes in memory, which must outlive the object.
  static absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes);

  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const TensorView* Find(const std::string& name) const;  // null when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;

  std::unique_ptr<MmapFile> file_;  // null when parsed from memory
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace baton::engine
