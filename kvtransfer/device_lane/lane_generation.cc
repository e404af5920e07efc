#include "kvtransfer/device_lane/lane_generation.h"

namespace baton::kvtransfer {

LaneGeneration::LaneGeneration(DeviceLinkFactory factory, std::function<void(LaneMessage)> send)
    : factory_(std::move(factory)), send_(std::move(send)) {
  Say(LaneReset{});
}

void LaneGeneration::OnReset() {
  if (link_ != nullptr) return;
  link_ = factory_(number_, [this](std::string bytes) { Say(LaneLink{std::move(bytes)}); });
  for (const std::string& bytes : std::exchange(early_, {})) link_->OnMessage(bytes);
}

bool LaneGeneration::OnLink(const LaneLink& message) {
  if (link_ != nullptr) {
    link_->OnMessage(message.bytes);
    return true;
  }
  if (early_.size() == kMaxEarlyLinks) return false;
  early_.push_back(message.bytes);
  return true;
}

void LaneGeneration::Abort() {
  link_.reset();
  early_.clear();
}

void LaneGeneration::Begin(uint64_t number) {
  Abort();
  number_ = number;
  Say(LaneReset{});
}

}  // namespace baton::kvtransfer
