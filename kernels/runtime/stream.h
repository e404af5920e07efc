#pragma once

#include <cstdint>

struct CUstream_st;  // CUDA's stream handle points to one

namespace baton::kernels {

class Event;

// Owns a CUDA stream of the current device; work on it does not wait for the default stream. Used
// by one thread at a time.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  CUstream_st* get() const { return stream_; }

  void Synchronize() const;       // blocks the caller until all work issued so far is done
  void Wait(const Event& event);  // later work waits on the device for the event's last record

 private:
  CUstream_st* stream_ = nullptr;
};

// The same for a stream that somebody else owns.
void Wait(CUstream_st* stream, const Event& event);

// Asynchronous copies between any two of device and pinned memory, and fills.
void CopyAsync(void* target, const void* source, int64_t bytes, CUstream_st* stream);
// `rows` pieces of `bytes` bytes, each so many bytes after the one before.
void CopyRowsAsync(void* target, int64_t target_stride, const void* source, int64_t source_stride,
                   int64_t bytes, int64_t rows, CUstream_st* stream);
void FillAsync(void* target, uint8_t value, int64_t bytes, CUstream_st* stream);

}  // namespace baton::kernels
