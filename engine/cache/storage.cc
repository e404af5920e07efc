#include "engine/cache/storage.h"

#include <atomic>
#include <utility>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"

namespace baton::engine {
namespace {

// Zero pages that the kernel hands out on first touch: a pool sized for the worst case costs only
// what is in use.
absl::StatusOr<CacheStorage::Memory> MapZeroed(const char* option, int64_t count,
                                               int64_t bytes_each) {
  if (count == 0) return nullptr;
  size_t bytes = 0;
  void* data = MAP_FAILED;
  if (!__builtin_mul_overflow(count, bytes_each, &bytes)) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
  }
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        option, " is ", count, ": no room for so many of ", bytes_each, " bytes of cache"));
  }
  return CacheStorage::Memory(static_cast<std::byte*>(data),
                              [bytes](std::byte* begin) { munmap(begin, bytes); });
}

absl::StatusOr<CacheStorage::Memory> MapPages(const CacheGeometry& geometry) {
  return MapZeroed("pages", geometry.options.pages, geometry.page_bytes());
}
absl::StatusOr<CacheStorage::Memory> MapSlots(const CacheGeometry& geometry) {
  return MapZeroed("slots", geometry.options.slots, geometry.slot_bytes());
}

uint64_t NextId() {
  static std::atomic<uint64_t> ids{0};
  return ++ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CacheStorage>> CacheStorage::InMainMemory(
    const CacheGeometry& geometry) {
  BATON_ASSIGN_OR_RETURN(Memory pages, MapPages(geometry));
  BATON_ASSIGN_OR_RETURN(Memory slots, MapSlots(geometry));
  return std::make_unique<CacheStorage>(geometry, std::move(pages), std::move(slots));
}

CacheStorage::CacheStorage(const CacheGeometry& geometry)
    : CacheStorage(geometry, *MapPages(geometry), *MapSlots(geometry)) {}

CacheStorage::CacheStorage(const CacheGeometry& geometry, Memory pages, Memory slots)
    : geometry_(geometry), id_(NextId()), pages_(std::move(pages)), slots_(std::move(slots)) {
  const CacheOptions& options = geometry.options;
  const int64_t csa_page =
      kernels::PageBytes(options.kv_format, geometry.head_dim, geometry.csa_entries_per_page());
  const int64_t index_page = kernels::PageBytes(options.index_format, geometry.index_head_dim,
                                                geometry.csa_entries_per_page());
  index_pool_ = geometry.csa_layers * options.pages * csa_page;
  hca_pool_ = index_pool_ + geometry.csa_layers * options.pages * index_page;

  const int64_t window_bytes = int64_t{geometry.window_rows()} * geometry.head_dim * 2;
  const int64_t csa_bytes = int64_t{geometry.csa_state_rows()} * 4 * geometry.head_dim * 4;
  const int64_t index_bytes = int64_t{geometry.csa_state_rows()} * 4 * geometry.index_head_dim * 4;
  const int64_t hca_bytes = int64_t{geometry.hca_state_rows()} * 2 * geometry.head_dim * 4;
  const int64_t carry_bytes =
      int64_t{geometry.carry_rows()} * geometry.streams * geometry.hidden_size * 2;
  offsets_.csa = (geometry.trunk_layers + geometry.mtp_layers) * window_bytes;
  offsets_.index = offsets_.csa + geometry.csa_layers * csa_bytes;
  offsets_.hca = offsets_.index + geometry.csa_layers * index_bytes;
  offsets_.carry = offsets_.hca + geometry.hca_layers * hca_bytes;
  offsets_.end = offsets_.carry + geometry.mtp_layers * carry_bytes;
  BATON_CHECK(offsets_.end == geometry.slot_bytes()) << offsets_.end;
}

namespace {

kernels::PagedPool Pool(std::byte* first, int ordinal, const CacheOptions& options,
                        kernels::PagedPool shape) {
  shape.page_bytes = kernels::PageBytes(shape.format, shape.head_dim, shape.entries_per_page);
  shape.data = first + ordinal * options.pages * shape.page_bytes;
  return shape;
}

}  // namespace

kernels::PagedPool CacheStorage::CsaKv(int csa) const {
  BATON_CHECK(csa >= 0 && csa < geometry_.csa_layers) << csa;
  return Pool(pages_.get(), csa, geometry_.options,
              {.format = geometry_.options.kv_format,
               .head_dim = geometry_.head_dim,
               .entries_per_page = geometry_.csa_entries_per_page()});
}

kernels::PagedPool CacheStorage::IndexKeys(int csa) const {
  BATON_CHECK(csa >= 0 && csa < geometry_.csa_layers) << csa;
  return Pool(pages_.get() + index_pool_, csa, geometry_.options,
              {.format = geometry_.options.index_format,
               .head_dim = geometry_.index_head_dim,
               .entries_per_page = geometry_.csa_entries_per_page()});
}

kernels::PagedPool CacheStorage::HcaKv(int hca) const {
  BATON_CHECK(hca >= 0 && hca < geometry_.hca_layers) << hca;
  return Pool(pages_.get() + hca_pool_, hca, geometry_.options,
              {.format = geometry_.options.kv_format,
               .head_dim = geometry_.head_dim,
               .entries_per_page = geometry_.hca_entries_per_page()});
}

template <typename T>
kernels::RowRing<T> CacheStorage::Ring(int slot, int64_t offset, int ordinal, int rows,
                                       int width) const {
  BATON_CHECK(slot >= 0 && slot < geometry_.options.slots) << slot;
  std::byte* first = slots_.get() + slot * offsets_.end + offset;
  return {.data = reinterpret_cast<T*>(first) + int64_t{ordinal} * rows * width,
          .rows = rows,
          .width = width};
}

kernels::RowRing<BFloat16> CacheStorage::Window(int slot, int layer) const {
  BATON_CHECK(layer >= 0 && layer < geometry_.trunk_layers) << layer;
  return Ring<BFloat16>(slot, offsets_.window, layer, geometry_.window_rows(), geometry_.head_dim);
}

kernels::RowRing<BFloat16> CacheStorage::MtpWindow(int slot) const {
  BATON_CHECK(geometry_.mtp_layers > 0);
  return Ring<BFloat16>(slot, offsets_.window, geometry_.trunk_layers, geometry_.window_rows(),
                        geometry_.head_dim);
}

kernels::RowRing<float> CacheStorage::CsaState(int slot, int csa) const {
  BATON_CHECK(csa >= 0 && csa < geometry_.csa_layers) << csa;
  return Ring<float>(slot, offsets_.csa, csa, geometry_.csa_state_rows(), 4 * geometry_.head_dim);
}

kernels::RowRing<float> CacheStorage::IndexState(int slot, int csa) const {
  BATON_CHECK(csa >= 0 && csa < geometry_.csa_layers) << csa;
  return Ring<float>(slot, offsets_.index, csa, geometry_.csa_state_rows(),
                     4 * geometry_.index_head_dim);
}

kernels::RowRing<float> CacheStorage::HcaState(int slot, int hca) const {
  BATON_CHECK(hca >= 0 && hca < geometry_.hca_layers) << hca;
  return Ring<float>(slot, offsets_.hca, hca, geometry_.hca_state_rows(), 2 * geometry_.head_dim);
}

kernels::RowRing<BFloat16> CacheStorage::Carry(int slot) const {
  BATON_CHECK(geometry_.mtp_layers > 0);
  return Ring<BFloat16>(slot, offsets_.carry, 0, geometry_.carry_rows(),
                        geometry_.streams * geometry_.hidden_size);
}

}  // namespace baton::engine
