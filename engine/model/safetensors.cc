#include "engine/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/model/json.h"

namespace baton::engine {
namespace {

using Json = nlohmann::json;

constexpr size_t kPrefixBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMaxHeaderDepth = 3;                 // header, tensor, shape
constexpr size_t kMaxRank = 8;

struct TypeInfo {
  TensorType type;
  absl::string_view name;
  int64_t bytes;
};
constexpr TypeInfo kTypes[] = {
    {TensorType::kBf16, "BF16", 2},      {TensorType::kF32, "F32", 4},
    {TensorType::kF8E4M3, "F8_E4M3", 1}, {TensorType::kF8E8M0, "F8_E8M0", 1},
    {TensorType::kI8, "I8", 1},          {TensorType::kI32, "I32", 4},
    {TensorType::kI64, "I64", 8},
};

const TypeInfo& InfoOf(TensorType type) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeInfo& info) { return info.type == type; });
  BATON_CHECK(it != std::end(kTypes)) << static_cast<int>(type);
  return *it;
}

// A non-negative integer that fits int64.
std::optional<int64_t> AsSize(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<int64_t> Multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

absl::StatusOr<TensorType> ReadType(const Json& entry) {
  const auto it = entry.find("dtype");
  if (it == entry.end() || !it->is_string()) return absl::InvalidArgumentError("has no dtype");
  const auto& name = it->get_ref<const std::string&>();
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return absl::InvalidArgumentError(absl::StrCat("has unsupported dtype ", name.substr(0, 32)));
}

absl::StatusOr<std::vector<int64_t>> ReadShape(const Json& entry) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array() || it->size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("needs a shape, an array of at most ", kMaxRank, " sizes"));
  }
  std::vector<int64_t> shape;
  for (const Json& size : *it) {
    const std::optional<int64_t> value = AsSize(size);
    if (!value) return absl::InvalidArgumentError("has a shape with an invalid size");
    shape.push_back(*value);
  }
  return shape;
}

// Reads one entry of the header against a data section; checks everything but overlap.
absl::StatusOr<TensorView> ReadTensor(const Json& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) return absl::InvalidArgumentError("is not an object");
  TensorView tensor;
  BATON_ASSIGN_OR_RETURN(tensor.type, ReadType(entry));
  BATON_ASSIGN_OR_RETURN(tensor.shape, ReadShape(entry));
  std::optional<int64_t> expected = TensorTypeBytes(tensor.type);
  for (const int64_t size : tensor.shape) {
    if (expected) expected = Multiply(*expected, size);
  }
  if (!expected) return absl::InvalidArgumentError("has a shape that overflows 64 bits");

  const auto it = entry.find("data_offsets");
  if (it == entry.end() || !it->is_array() || it->size() != 2) {
    return absl::InvalidArgumentError("needs data_offsets, an array of two integers");
  }
  const std::optional<int64_t> begin = AsSize((*it)[0]);
  const std::optional<int64_t> end = AsSize((*it)[1]);
  if (!begin || !end || *begin > *end || *end > static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat("has data_offsets ", it->dump(),
                                                   " outside the data section of ", data.size(),
                                                   " bytes (truncated file?)"));
  }
  if (*end - *begin != *expected) {
    return absl::InvalidArgumentError(absl::StrCat("has ", *end - *begin, " bytes of data, ",
                                                   DescribeTensor(tensor.type, tensor.shape),
                                                   " needs ", *expected));
  }
  tensor.bytes = data.subspan(*begin, *end - *begin);
  return tensor;
}

// The format demands that tensors tile the data section: what overlaps or hides bytes is refused.
absl::Status CheckTiling(const std::map<std::string, TensorView>& tensors,
                         std::span<const std::byte> data) {
  std::vector<std::pair<const std::string*, std::span<const std::byte>>> extents;
  for (const auto& [name, tensor] : tensors) extents.emplace_back(&name, tensor.bytes);
  std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.data(), a.second.size()) <
           std::pair(b.second.data(), b.second.size());
  });
  const std::byte* next = data.data();
  for (const auto& [name, bytes] : extents) {
    if (bytes.data() != next) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", *name, " starts at data offset ", bytes.data() - data.data(),
                       bytes.data() < next ? ", inside the tensor before it, which ends at "
                                           : ", after a gap from ",
                       next - data.data()));
    }
    next = bytes.data() + bytes.size();
  }
  if (next != data.data() + data.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the last ", data.data() + data.size() - next, " bytes belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> ReadMetadata(const Json& entry) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) return absl::InvalidArgumentError("__metadata__ is not an object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("__metadata__.", key, " is not a string"));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

absl::StatusOr<absl::string_view> HeaderText(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefixBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncated: ", bytes.size(), " bytes, a header length takes 8"));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - kPrefixBytes || length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header length ", length, " exceeds the file (",
                                                   bytes.size(), " bytes) or ", kMaxHeaderBytes));
  }
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, length);
}

}  // namespace

absl::string_view TensorTypeName(TensorType type) { return InfoOf(type).name; }

int64_t TensorTypeBytes(TensorType type) { return InfoOf(type).bytes; }

int64_t TensorView::elements() const {
  return static_cast<int64_t>(bytes.size()) / TensorTypeBytes(type);
}

std::string DescribeTensor(TensorType type, std::span<const int64_t> shape) {
  return absl::StrCat(TensorTypeName(type), " [", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(MmapFile file, MmapFile::Open(path));
  auto mapped = std::make_unique<MmapFile>(std::move(file));
  absl::StatusOr<SafetensorsFile> parsed = Parse(mapped->bytes());
  BATON_RETURN_IF_ERROR(parsed.status()) << path;
  parsed->file_ = std::move(mapped);
  return parsed;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes) {
  BATON_ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(bytes));
  const std::span<const std::byte> data = bytes.subspan(kPrefixBytes + text.size());
  absl::StatusOr<Json> header = ParseUntrustedJson(text, kMaxHeaderDepth);
  BATON_RETURN_IF_ERROR(header.status()) << "header";
  if (!header->is_object()) return absl::InvalidArgumentError("the header is not a JSON object");
  SafetensorsFile file;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      BATON_ASSIGN_OR_RETURN(file.metadata_, ReadMetadata(entry));
      continue;
    }
    absl::StatusOr<TensorView> tensor = ReadTensor(entry, data);
    BATON_RETURN_IF_ERROR(tensor.status()) << "tensor " << name.substr(0, 200);
    file.tensors_.emplace(name, *std::move(tensor));
  }
  BATON_RETURN_IF_ERROR(CheckTiling(file.tensors_, data));
  return file;
}

const TensorView* SafetensorsFile::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace baton::engine
