#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <stdlib.h>

#include "engine/model/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

// Files for loader tests: a directory that goes away, and safetensors built in memory.

namespace baton::engine {

inline const std::string kModelDir = BATON_SOURCE_DIR "/models/needle-17m";

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "/baton-model-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot create " << pattern;
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The bytes of a file with this header text and data, whatever they say.
inline std::string RawSafetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

struct TestTensor {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

inline std::string BuildSafetensors(const TestTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.type},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return RawSafetensors(header.dump(), data);
}

// All tensors of the checkpoint in models/, to be changed and written as one file.
inline TestTensors ModelTensors() {
  TestTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(kModelDir)) {
    if (entry.path().extension() != ".safetensors") continue;
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(entry.path());
    if (!file.ok()) {
      ADD_FAILURE() << file.status();
      continue;
    }
    for (const auto& [name, tensor] : file->tensors()) {
      tensors[name] = {
          std::string(TensorTypeName(tensor.type)), tensor.shape,
          std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
    }
  }
  return tensors;
}

}  // namespace baton::engine
