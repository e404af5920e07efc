#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/device_link.h"

namespace baton::kvtransfer {

// A device link on the CPU that keeps the rule of the real ones: the n-th send meets the n-th
// receive. Two that do not belong together hang, and everything behind them, as on a device; unlike
// a device it remembers that they did. Groups move when the test says so.
class FakeDevice {
 public:
  DeviceLinkFactory SenderEnd() {
    return [this](uint64_t generation, const auto&) { return Create(generation, /*sends=*/true); };
  }
  DeviceLinkFactory ReceiverEnd() {
    return [this](uint64_t generation, const auto&) { return Create(generation, /*sends=*/false); };
  }

  // Completes at most one group of the newest generation. False when there was none to complete.
  bool Step() {
    if (wires_.empty()) return false;
    Wire& wire = *wires_.rbegin()->second;
    if (wire.broken || wire.ends != 2 || wire.sends.empty() || wire.receives.empty()) return false;
    const Send& send = wire.sends.front();
    const Receive& receive = wire.receives.front();
    if (send.sequence != receive.sequence || send.from.size() != receive.to.size()) {
      ++hangs_;
      wire.broken = true;
      return false;
    }
    std::copy(send.from.begin(), send.from.end(), receive.to.begin());
    wire.sends.pop_front();
    wire.receives.pop_front();
    ++wire.done;
    return true;
  }

  // The newest link reports a fault at both ends.
  void Fail() {
    if (!wires_.empty()) wires_.rbegin()->second->failed = true;
  }

  int hangs() const { return hangs_; }

 private:
  struct Send {
    uint64_t sequence;
    std::span<const std::byte> from;
  };
  struct Receive {
    uint64_t sequence;
    std::span<std::byte> to;
  };
  struct Wire {
    std::deque<Send> sends;
    std::deque<Receive> receives;
    uint64_t done = 0;
    int ends = 0;
    bool broken = false;  // hangs, silently
    bool failed = false;
  };

  class Link final : public DeviceLink {
   public:
    explicit Link(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) { ++wire_->ends; }
    // Aborts: nothing of the wire moves any more.
    ~Link() override { wire_->broken = true; }
    void Send(uint64_t sequence, std::span<const std::byte> staging) override {
      wire_->sends.push_back({sequence, staging});
    }
    void Receive(uint64_t sequence, std::span<std::byte> staging) override {
      wire_->receives.push_back({sequence, staging});
    }
    absl::StatusOr<uint64_t> Done() override {
      if (wire_->failed) return absl::UnavailableError("the link reports a fault");
      return wire_->done;
    }

   private:
    const std::shared_ptr<Wire> wire_;
  };

  std::unique_ptr<DeviceLink> Create(uint64_t generation, bool sends) {
    EXPECT_TRUE(created_.emplace(generation, sends).second) << "created twice: " << generation;
    std::shared_ptr<Wire>& wire = wires_[generation];
    if (wire == nullptr) wire = std::make_shared<Wire>();
    return std::make_unique<Link>(wire);
  }

  std::map<uint64_t, std::shared_ptr<Wire>> wires_;  // by generation
  std::set<std::pair<uint64_t, bool>> created_;
  int hangs_ = 0;
};

}  // namespace baton::kvtransfer
