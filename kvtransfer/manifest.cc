#include "kvtransfer/manifest.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fnv1a.h"

namespace baton::kvtransfer {
namespace {

// What a prefill worker sends depends on what Open and Grant say, and frames have a layout.
// 2: Grant.state_tokens. 3: Finished.first_token_logprobs. 4: frames of version 2. 5: penalties and
// biases in Open.sampling, which change the first token.
constexpr int kProtocolVersion = 5;

// Of fields one after another. The number goes over the wire, so it must not depend on process or
// build: integers are little-endian, and a text follows its length.
class FieldHash {
 public:
  void Add(absl::string_view text) {
    Add(text.size());
    state_ = Fnv1a64({text.data(), text.size()}, state_);
  }
  void Add(uint64_t value) {
    std::array<char, sizeof(value)> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    state_ = Fnv1a64({bytes.data(), bytes.size()}, state_);
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = kFnv1aSeed;
};

std::vector<StreamLayout> SortedStreams(const CacheLayout& layout) {
  std::vector<StreamLayout> streams = layout.streams;
  std::sort(streams.begin(), streams.end(),
            [](const StreamLayout& a, const StreamLayout& b) { return a.stream < b.stream; });
  return streams;
}

template <typename Local, typename Remote>
absl::Status Differs(absl::string_view field, const Local& local, const Remote& remote) {
  return absl::FailedPreconditionError(
      absl::StrCat("manifests differ in ", field, ": local ", local, ", remote ", remote));
}

absl::Status CompareSemantics(const Manifest& local, const Manifest& remote) {
  const std::map<std::string, std::string> ours(local.semantics.begin(), local.semantics.end());
  const std::map<std::string, std::string> theirs(remote.semantics.begin(), remote.semantics.end());
  for (const auto& [name, value] : ours) {
    const auto it = theirs.find(name);
    if (it == theirs.end()) return Differs(name, value, "has no such field");
    if (it->second != value) return Differs(name, value, it->second);
  }
  for (const auto& [name, value] : theirs) {
    if (!ours.contains(name)) return Differs(name, "has no such field", value);
  }
  if (local.semantics.size() != remote.semantics.size()) {  // one of them repeats a name
    return Differs("number of fields", local.semantics.size(), remote.semantics.size());
  }
  return absl::OkStatus();
}

absl::Status CompareStream(const StreamLayout* local, const StreamLayout* remote,
                           absl::string_view name) {
  const auto presence = [](const StreamLayout* layout) {
    return layout == nullptr ? "has none" : "has it";
  };
  if (local == nullptr && remote == nullptr) return absl::OkStatus();
  if (local == nullptr || remote == nullptr) {
    return Differs(absl::StrCat("stream ", name), presence(local), presence(remote));
  }
  if (local->format != remote->format) {
    return Differs(absl::StrCat("format of ", name), std::string(RecordFormatName(local->format)),
                   std::string(RecordFormatName(remote->format)));
  }
  if (local->layers != remote->layers) {
    return Differs(absl::StrCat("layers of ", name), local->layers, remote->layers);
  }
  if (local->record_bytes != remote->record_bytes) {
    return Differs(absl::StrCat("record bytes of ", name), local->record_bytes,
                   remote->record_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

Manifest MakeManifest(CacheDescription cache, std::vector<std::string> transports) {
  cache.semantics.emplace_back("handoff_protocol", absl::StrCat(kProtocolVersion));
  return {.semantics = std::move(cache.semantics),
          .layout = std::move(cache.layout),
          .page_tokens = cache.page_tokens,
          .rollback_rows = cache.rollback_rows,
          .transports = std::move(transports)};
}

uint64_t SemanticsHash(const Manifest& manifest) {
  FieldHash hash;
  std::vector<std::pair<std::string, std::string>> semantics = manifest.semantics;
  std::sort(semantics.begin(), semantics.end());
  hash.Add(semantics.size());
  for (const auto& [name, value] : semantics) {
    hash.Add(name);
    hash.Add(value);
  }
  for (const StreamLayout& stream : SortedStreams(manifest.layout)) {
    hash.Add(static_cast<uint64_t>(stream.stream));
    hash.Add(static_cast<uint64_t>(stream.format));
    hash.Add(stream.layers);
    hash.Add(stream.record_bytes);
  }
  return hash.value();
}

absl::Status CheckCompatible(const Manifest& local, const Manifest& remote) {
  if (absl::Status status = CompareSemantics(local, remote); !status.ok()) return status;
  for (int i = 1; i <= kCacheStreamCount; ++i) {
    const auto stream = static_cast<CacheStream>(i);
    absl::Status status = CompareStream(local.layout.Find(stream), remote.layout.Find(stream),
                                        std::string(CacheStreamName(stream)));
    if (!status.ok()) return status;
  }
  // Every known stream is equal: what is left are unknown ones and repetitions.
  if (local.layout.streams.size() != remote.layout.streams.size()) {
    return Differs("number of streams", local.layout.streams.size(), remote.layout.streams.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CommonTransports(const Manifest& local,
                                                          const Manifest& remote) {
  std::vector<std::string> common;
  for (const std::string& transport : local.transports) {
    if (std::find(remote.transports.begin(), remote.transports.end(), transport) !=
        remote.transports.end()) {
      common.push_back(transport);
    }
  }
  if (!common.empty()) return common;
  return absl::FailedPreconditionError(
      absl::StrCat("no common transport: local [", absl::StrJoin(local.transports, ", "),
                   "], remote [", absl::StrJoin(remote.transports, ", "), "]"));
}

bool IsDeviceTransport(std::string_view name) { return name == "cuda_ipc" || name == "nccl"; }

absl::Status CheckTransportNames(const std::vector<std::string>& transports,
                                 const std::string& device) {
  constexpr std::array<absl::string_view, 4> kKnown = {"cuda_ipc", "nccl", "shm", "grpc"};
  for (auto it = transports.begin(); it != transports.end(); ++it) {
    if (std::find(kKnown.begin(), kKnown.end(), *it) == kKnown.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", *it, "\" is unknown; expected ", absl::StrJoin(kKnown, " or ")));
    }
    if (IsDeviceTransport(*it) && device != "cuda") {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", *it, "\" moves caches on GPUs, but device is \"", device, "\""));
    }
    if (std::find(transports.begin(), it, *it) != it) {
      return absl::InvalidArgumentError(absl::StrCat("\"", *it, "\" is given twice"));
    }
  }
  return transports.empty() ? absl::InvalidArgumentError("none is given") : absl::OkStatus();
}

}  // namespace baton::kvtransfer
