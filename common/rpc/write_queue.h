#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace baton::rpc {

// The messages of one stream that wait to be written, of which gRPC takes one at a time. Not
// thread-safe: the call that owns it guards it.
template <typename Message>
class WriteQueue {
 public:
  explicit WriteQueue(size_t capacity) : capacity_(capacity) {}

  // False when `capacity` messages wait already; the one being written does not count.
  bool Push(Message&& message) {
    if (messages_.size() - (writing_ ? 1 : 0) >= capacity_) return false;
    messages_.push_back(std::move(message));
    return true;
  }

  // The message to write now, valid until Written; null while one is being written or none waits.
  const Message* StartNext() {
    if (writing_ || messages_.empty()) return nullptr;
    writing_ = true;
    return &messages_.front();
  }

  void Written() {
    messages_.pop_front();
    writing_ = false;
  }

  // Drops what waits. The message being written stays until Written.
  void Discard() {
    while (messages_.size() > (writing_ ? 1u : 0u)) messages_.pop_back();
  }

  bool idle() const { return messages_.empty(); }
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  std::deque<Message> messages_;
  bool writing_ = false;  // messages_.front()
};

}  // namespace baton::rpc
