#pragma once

#include "engine/cache/storage.h"
#include "engine/model/config.h"
#include "kernels/cache_view.h"

namespace baton::engine {

// The cache as one layer sees it.
class LayerCache {
 public:
  static LayerCache Trunk(const CacheStorage& storage, const ModelConfig& config, int layer);
  static LayerCache Mtp(const CacheStorage& storage);

  LayerKind kind() const { return kind_; }
  int layer() const { return layer_; }  // of the trunk; -1 for the MTP block
  kernels::RowRing<BFloat16> Window(int slot) const;
  kernels::RowRing<float> KvState(int slot) const;     // CSA, HCA
  kernels::PagedPool KvPool() const;                   // CSA, HCA
  kernels::RowRing<float> IndexState(int slot) const;  // CSA
  kernels::PagedPool IndexPool() const;                // CSA

 private:
  LayerCache(const CacheStorage& storage, LayerKind kind, int layer, int ordinal)
      : storage_(&storage), kind_(kind), layer_(layer), ordinal_(ordinal) {}

  static constexpr int kMtpLayer = -1;

  const CacheStorage* storage_;
  LayerKind kind_;
  int layer_;
  int ordinal_;  // among the layers of its kind
};

}  // namespace baton::engine
