#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace baton::router {

// Bytes of request bodies that a server holds at a time, over all its connections: from their
// arrival until the handler is done with them, or the front end with gRPC's messages. Without it as
// many slow clients as there may be connections could each keep a body of the largest size in
// memory. Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(int64_t bytes) : left_(bytes) {}
  BodyBudget(const BodyBudget&) = delete;

  // What one body takes of it, given back with this object. The budget outlives it. Not
  // thread-safe.
  class Share {
   public:
    Share() = default;
    explicit Share(BodyBudget* budget) : budget_(budget) {}
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->left_ += bytes_;
    }

    // To `bytes` in all. False, and nothing changes, when so many are not left.
    bool Grow(int64_t bytes) {
      const int64_t more = bytes - bytes_;
      if (more > 0 && budget_->left_.fetch_sub(more) < more) {
        budget_->left_ += more;
        return false;
      }
      if (more > 0) bytes_ = bytes;
      return true;
    }

   private:
    BodyBudget* budget_ = nullptr;  // null: of no body
    int64_t bytes_ = 0;
  };

 private:
  std::atomic<int64_t> left_;
};

}  // namespace baton::router
