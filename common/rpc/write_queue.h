#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <utility>

namespace baton::rpc {

inline constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

// The messages of one stream that wait to be written, of which gRPC takes one at a time. Not
// thread-safe: the call that owns it guards it.
template <typename Message>
class WriteQueue {
 public:
  // Bytes are counted only where they are limited, of messages of protobuf's.
  explicit WriteQueue(size_t capacity, size_t capacity_bytes = kAnyBytes)
      : capacity_(capacity), capacity_bytes_(capacity_bytes) {}

  // False when `capacity` messages wait already, or too many bytes would: but one message may wait
  // whatever its size. The one being written does not count.
  bool Push(Message&& message) {
    const size_t bytes = BytesOf(message);
    if (waiting() >= capacity_) return false;
    if (waiting() > 0 && waiting_bytes_ + bytes > capacity_bytes_) return false;
    waiting_bytes_ += bytes;
    messages_.push_back(std::move(message));
    return true;
  }

  // The message to write now, valid until Written; null while one is being written or none waits.
  const Message* StartNext() {
    if (writing_ || messages_.empty()) return nullptr;
    writing_ = true;
    waiting_bytes_ -= BytesOf(messages_.front());
    return &messages_.front();
  }

  void Written() {
    messages_.pop_front();
    writing_ = false;
  }

  // Drops what waits. The message being written stays until Written.
  void Discard() {
    while (messages_.size() > (writing_ ? 1u : 0u)) messages_.pop_back();
    waiting_bytes_ = 0;
  }

  size_t waiting() const { return messages_.size() - (writing_ ? 1 : 0); }
  bool idle() const { return messages_.empty(); }
  size_t capacity() const { return capacity_; }

 private:
  size_t BytesOf(const Message& message) const {
    if constexpr (requires { message.ByteSizeLong(); }) {
      if (capacity_bytes_ != kAnyBytes) return message.ByteSizeLong();
    }
    return 0;
  }

  const size_t capacity_;
  const size_t capacity_bytes_;
  std::deque<Message> messages_;
  bool writing_ = false;      // messages_.front()
  size_t waiting_bytes_ = 0;  // of the others; 0 where bytes have no limit
};

}  // namespace baton::rpc
