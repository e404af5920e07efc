"""mutants.py NAME ROOT COPY: the source of one mutant, with its fault put in.

Each is a fault that an implementation of this indexer, or of a hand-off, had or could have. They are linked
into builds of baton-recall for tests (recall_mutant_NAME), never into anything that is shipped."""

import pathlib
import subprocess
import sys

# name: (source, [find, replace, ...]); each text to be found stands there exactly once.
MUTANTS = {
    # Values and scale of an entry side by side, where a page has all values first.
    "read_as_interleaved": ("kernels/cpu/cache_entry.cc", [
        "constexpr uint8_t kE8m0Nan = 255;",
        "constexpr uint8_t kE8m0Nan = 255;\n"
        "EntryAddress SideBySide(const PagedPool& pool, int64_t entry, EntryAddress at) {\n"
        "  const EntryBytes bytes = BytesOfEntry(pool.format, pool.head_dim);\n"
        "  const int64_t index = entry % pool.entries_per_page;\n"
        "  std::byte* record = at.values + index * bytes.scales;\n"
        "  return {record, record + bytes.values};\n"
        "}",
        "return DecodeFp8Index(address, values);",
        "return DecodeFp8Index(SideBySide(pool, entry, address), values);",
        "return DecodeFp4Index(address, values);",
        "return DecodeFp4Index(SideBySide(pool, entry, address), values);"]),
    # The scale of the entry after this one.
    "scale_of_next_row": ("kernels/cpu/cache_entry.cc", [
        "std::memcpy(&scale, from.scales, sizeof(scale));",
        "std::memcpy(&scale, from.scales + sizeof(scale), sizeof(scale));"]),
    # The Hadamard transform on one side only.
    "query_not_rotated": ("kernels/cpu/index_select.cc", ["isa.hadamard128(q);", ""]),
    "key_not_rotated": ("kernels/cpu/entry_store.cc", ["isa.hadamard128(row);", ""]),
    "no_relu": ("kernels/cpu/index_select.cc", [
        "constexpr int kLanes = 16;",
        "constexpr int kLanes = 16;\n"
        "void ScoreLinearly(const IndexBlock& block) {\n"
        "  for (int64_t row = 0; row < block.rows; ++row) {\n"
        "    for (int entry = 0; entry < kIndexBlockEntries; entry += kLanes) {\n"
        "      const float* keys = block.keys + entry * kIndexDim;\n"
        "      float scores[kLanes] = {};\n"
        "      for (int head = 0; head < block.heads; ++head) {\n"
        "        const float* q = block.q + (row * block.heads + head) * kIndexDim;\n"
        "        float dots[kLanes] = {};\n"
        "        for (int i = 0; i < kIndexDim; ++i) {\n"
        "          for (int j = 0; j < kLanes; ++j) dots[j] += q[i] * keys[i * kLanes + j];\n"
        "        }\n"
        "        const float w = block.w[row * block.heads + head];\n"
        "        for (int j = 0; j < kLanes; ++j) scores[j] += w * dots[j];\n"
        "      }\n"
        "      std::copy_n(scores, kLanes, block.scores + row * block.stride + entry);\n"
        "    }\n"
        "  }\n"
        "}",
        "isa.index_block({.q", "ScoreLinearly({.q"]),
    # Index queries rotated as window layers are: base 10000 and no YaRN.
    "wrong_rope_base": ("engine/model/attention_layer.cc", [
        "kernels::IndexQuery({.q = q, .heads = heads, .rope = rope_,",
        "kernels::IndexQuery({.q = q, .heads = heads, .rope = context_.rope,"]),
    # Every other page of index keys in BF16 is what an earlier sequence left there.
    "stale_page": ("engine/cache/sequence_records.cc", [
        '#include "kernels/crc32c.h"',
        '#include <cstring>\n\n#include "kernels/crc32c.h"',
        "  // What lands is read when its sequence runs",
        "  const size_t record_bytes = bytes.size() / static_cast<size_t>(range.indices.size());\n"
        "  // What lands is read when its sequence runs",
        "    crc = kernels::Crc32cCopy(bytes.first(size), piece.data, crc,",
        "    if (range.stream == CacheStream::kIndexKey && size % record_bytes == 0) {\n"
        "      const int64_t first =\n"
        "          range.indices.end - static_cast<int64_t>(bytes.size() / record_bytes);\n"
        "      for (size_t at = 0; at < size; at += record_bytes) {\n"
        "        if ((first + static_cast<int64_t>(at / record_bytes)) / 64 % 2 == 0)\n"
        "          std::memcpy(piece.data + at, bytes.data() + at, record_bytes);\n"
        "      }\n"
        "      crc = kernels::Crc32c(bytes.first(size), crc);\n"
        "      bytes = bytes.subspan(size);\n"
        "      continue;\n"
        "    }\n"
        "    crc = kernels::Crc32cCopy(bytes.first(size), piece.data, crc,"]),
    # Only pages are handed over.
    "states_not_sent": ("engine/cache/sequence_records.cc", [
        "  // What lands is read when its sequence runs",
        "  if (range.stream >= CacheStream::kCsaOverlapState &&\n"
        "      range.stream <= CacheStream::kHcaState)\n"
        "    return kernels::Crc32c(bytes, crc);\n"
        "  // What lands is read when its sequence runs"]),
}

if __name__ == "__main__":
    name, root, copy = sys.argv[1:]
    source, changes = MUTANTS[name]
    mutate = pathlib.Path(root) / "tests/kvtransfer/mutate.py"
    sys.exit(subprocess.call([sys.executable, mutate, pathlib.Path(root) / source, copy, *changes]))
