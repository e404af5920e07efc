#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string>

struct CUstream_st;
struct ncclComm;

// NCCL as it is used here: libnccl.so.2, loaded when it is first asked for and never unloaded, so
// that neither the build nor a machine without several devices needs it. What is declared here has
// been its binary interface since release 2.18, the first whose communicators that do not block can
// be aborted at any time.

namespace baton::kernels::nccl {

using Comm = ncclComm*;
enum Result : int { kSuccess = 0, kInProgress = 7 };
inline bool Ok(Result result) { return result == kSuccess || result == kInProgress; }
inline constexpr int kBytes = 0;  // ncclInt8

struct UniqueId {
  std::array<char, 128> bytes = {};
};

struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN and null: as the library likes
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct Library {
  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init)(Comm*, int ranks, UniqueId, int rank, Config*);
  Result (*comm_abort)(Comm);
  Result (*async_error)(Comm, Result*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, size_t, int type, int peer, Comm, CUstream_st*);
  Result (*recv)(void*, size_t, int type, int peer, Comm, CUstream_st*);
  const char* (*error_string)(Result);
  const char* (*last_error)(Comm);
  std::string missing;  // why it cannot be used; empty: it can

  static const Library& Get();

 private:
  Library();
};

// What went wrong, for a reader. Null: before there was a communicator.
std::string Describe(const char* call, Result result, Comm comm);

}  // namespace baton::kernels::nccl
