#include "router/policy/prefix_memory.h"

#include <algorithm>
#include <string_view>

#include "common/fnv1a.h"

namespace baton::router {
namespace {

// A prompt that many ask for is at home on several workers, but not on all.
constexpr size_t kWorkersPerBlock = 8;

// Of each whole block and everything before it.
std::vector<uint64_t> BlockHashes(std::span<const int32_t> prompt) {
  std::vector<uint64_t> hashes;
  uint64_t hash = kFnv1aSeed;
  for (size_t at = 0; at + PrefixMemory::kBlockTokens <= prompt.size();
       at += PrefixMemory::kBlockTokens) {
    const auto block = prompt.subspan(at, PrefixMemory::kBlockTokens);
    hash = Fnv1a64({reinterpret_cast<const char*>(block.data()), block.size_bytes()}, hash);
    hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace

std::vector<PrefixMemory::Known> PrefixMemory::Find(std::span<const int32_t> prompt) const {
  const std::vector<uint64_t> hashes = BlockHashes(prompt);
  std::vector<Known> known;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto block = blocks_.find(hashes[i]);
    if (block == blocks_.end()) break;
    const auto tokens = static_cast<int64_t>((i + 1) * kBlockTokens);
    for (const WorkerId& worker : block->second.workers) {
      const auto it = std::ranges::find(known, worker, &Known::worker);
      if (it == known.end()) {
        known.push_back({worker, tokens});
      } else {
        it->tokens = tokens;
      }
    }
  }
  return known;
}

void PrefixMemory::Remember(std::span<const int32_t> prompt, std::span<const WorkerId> workers) {
  const std::vector<uint64_t> hashes = BlockHashes(prompt);
  MutexLock lock(mutex_);
  // The end first: it is the first to be forgotten.
  for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) {
    const auto [it, inserted] = blocks_.try_emplace(*hash);
    Block& block = it->second;
    if (inserted) block.use = by_use_.insert(by_use_.end(), *hash);
    by_use_.splice(by_use_.end(), by_use_, block.use);
    for (const WorkerId& worker : workers) {
      std::erase(block.workers, worker);
      block.workers.push_back(worker);
    }
    if (block.workers.size() > kWorkersPerBlock) {
      block.workers.erase(block.workers.begin(), block.workers.end() - kWorkersPerBlock);
    }
  }
  while (blocks_.size() > max_blocks_) {
    blocks_.erase(by_use_.front());
    by_use_.pop_front();
  }
}

}  // namespace baton::router
