#pragma once

struct CUevent_st;  // CUDA's event handle points to one
struct CUstream_st;

namespace baton::kernels {

// Owns a CUDA event: a mark in a stream that others may wait for. Thread-safe but for Record.
class Event {
 public:
  enum class Timing { kOff, kOn };  // only timed events serve MillisecondsSince
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  CUevent_st* get() const { return event_; }

  void Record(CUstream_st* stream);
  bool Done() const;  // whether the device has passed the last record; true if there was none
  void Synchronize() const;
  // Device time between the records of `earlier` and of this event; both must be done.
  float MillisecondsSince(const Event& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace baton::kernels
