#include "kvtransfer/cuda_ipc/shared_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kvtransfer::cuda_ipc {
namespace {

// The driver's functions, asked of the runtime: nothing links with libcuda, which machines without
// a card lack.
struct Driver {
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

template <typename Function>
bool Find(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kVersion = 12000;  // of the interface
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  *function = reinterpret_cast<Function>(found);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

// Null when the driver lacks any.
const Driver* GetDriver() {
  static const std::unique_ptr<Driver> driver = [] {
    auto all = std::make_unique<Driver>();
    const bool found = Find("cuGetErrorString", &all->error_string) &&
                       Find("cuMemGetAllocationGranularity", &all->granularity) &&
                       Find("cuMemCreate", &all->create) && Find("cuMemRelease", &all->release) &&
                       Find("cuMemExportToShareableHandle", &all->export_handle) &&
                       Find("cuMemImportFromShareableHandle", &all->import_handle) &&
                       Find("cuMemAddressReserve", &all->reserve) &&
                       Find("cuMemAddressFree", &all->free_address) &&
                       Find("cuMemMap", &all->map) && Find("cuMemUnmap", &all->unmap) &&
                       Find("cuMemSetAccess", &all->set_access);
    return found ? std::move(all) : nullptr;
  }();
  return driver.get();
}

absl::Status DriverStatus(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  GetDriver()->error_string(result, &text);
  const std::string what = absl::StrCat(call, ": ", text == nullptr ? "unknown error" : text);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(what)
                                            : absl::UnavailableError(what);
}

absl::StatusOr<CUmemLocation> ThisDevice() {
  if (kernels::DeviceCount() == 0) return absl::UnavailableError("no NVIDIA driver or card");
  if (GetDriver() == nullptr) {
    return absl::UnavailableError("the NVIDIA driver cannot share memory between processes");
  }
  int device = 0;
  kernels::CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  kernels::UseDevice(device);  // the driver's functions need its context
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

absl::StatusOr<size_t> RoundUp(uint64_t bytes, const CUmemAllocationProp& properties) {
  size_t granularity = 0;
  absl::Status status = DriverStatus(
      GetDriver()->granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "cuMemGetAllocationGranularity");
  if (!status.ok()) return status;
  return (bytes + granularity - 1) / granularity * granularity;
}

CUmemAllocationProp Shareable(const CUmemLocation& location) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = location;
  return properties;
}

// Maps `bytes` of the allocation for the device; the mapping keeps the memory.
absl::StatusOr<std::shared_ptr<std::byte>> Map(CUmemGenericAllocationHandle handle, size_t bytes,
                                               const CUmemLocation& location) {
  const Driver& driver = *GetDriver();
  CUdeviceptr address = 0;
  absl::Status status =
      DriverStatus(driver.reserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  if (!status.ok()) return status;
  status = DriverStatus(driver.map(address, bytes, 0, handle, 0), "cuMemMap");
  if (!status.ok()) {
    driver.free_address(address, bytes);
    return status;
  }
  std::shared_ptr<std::byte> mapped(reinterpret_cast<std::byte*>(address),
                                    [&driver, address, bytes](std::byte*) {
                                      driver.unmap(address, bytes);
                                      driver.free_address(address, bytes);
                                    });
  CUmemAccessDesc access{};
  access.location = location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  status = DriverStatus(driver.set_access(address, bytes, &access, 1), "cuMemSetAccess");
  if (!status.ok()) return status;
  return mapped;
}

}  // namespace

absl::StatusOr<StagingMemory> AllocateShared(size_t bytes) {
  const absl::StatusOr<CUmemLocation> location = ThisDevice();
  if (!location.ok()) return location.status();
  const Driver& driver = *GetDriver();
  const CUmemAllocationProp properties = Shareable(*location);
  const absl::StatusOr<size_t> rounded = RoundUp(bytes, properties);
  if (!rounded.ok()) return rounded.status();
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status = DriverStatus(driver.create(&handle, *rounded, &properties, 0),
                                     "cuMemCreate for staging memory");
  if (!status.ok()) return status;
  StagingMemory memory;
  int fd = -1;
  status =
      DriverStatus(driver.export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "cuMemExportToShareableHandle");
  if (status.ok()) {
    memory.exported = Fd(fd);
    absl::StatusOr<std::shared_ptr<std::byte>> mapped = Map(handle, *rounded, *location);
    status = mapped.status();
    if (mapped.ok()) memory.owner = *std::move(mapped);
  }
  driver.release(handle);
  if (!status.ok()) return status;
  memory.bytes = {memory.owner.get(), bytes};
  return memory;
}

absl::StatusOr<std::shared_ptr<std::byte>> MapShared(const Fd& memory, uint64_t bytes) {
  const absl::StatusOr<CUmemLocation> location = ThisDevice();
  if (!location.ok()) return location.status();
  if (!memory.valid() || bytes == 0) {
    return absl::UnavailableError("no device memory came with Hello");
  }
  const Driver& driver = *GetDriver();
  const absl::StatusOr<size_t> rounded = RoundUp(bytes, Shareable(*location));
  if (!rounded.ok()) return rounded.status();
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status = DriverStatus(
      driver.import_handle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(memory.get())),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle");
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<std::byte>> mapped = Map(handle, *rounded, *location);
  driver.release(handle);
  return mapped;
}

}  // namespace baton::kvtransfer::cuda_ipc
