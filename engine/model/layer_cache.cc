#include "engine/model/layer_cache.h"

namespace baton::engine {

LayerCache LayerCache::Trunk(const CacheStorage& storage, const ModelConfig& config, int layer) {
  const LayerKind kind = config.layer_kind(layer);
  int ordinal = 0;
  for (int before = 0; before < layer; ++before) ordinal += config.layer_kind(before) == kind;
  return LayerCache(storage, kind, layer, ordinal);
}

LayerCache LayerCache::Mtp(const CacheStorage& storage) {
  return LayerCache(storage, LayerKind::kWindow, kMtpLayer, 0);
}

kernels::RowRing<BFloat16> LayerCache::Window(int slot) const {
  return layer_ == kMtpLayer ? storage_->MtpWindow(slot) : storage_->Window(slot, layer_);
}

kernels::RowRing<float> LayerCache::KvState(int slot) const {
  return kind_ == LayerKind::kCsa ? storage_->CsaState(slot, ordinal_)
                                  : storage_->HcaState(slot, ordinal_);
}

kernels::PagedPool LayerCache::KvPool() const {
  return kind_ == LayerKind::kCsa ? storage_->CsaKv(ordinal_) : storage_->HcaKv(ordinal_);
}

kernels::RowRing<float> LayerCache::IndexState(int slot) const {
  return storage_->IndexState(slot, ordinal_);
}

kernels::PagedPool LayerCache::IndexPool() const { return storage_->IndexKeys(ordinal_); }

}  // namespace baton::engine
