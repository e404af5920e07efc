#pragma once

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/device_lane/lane_receiver.h"
#include "kvtransfer/device_lane/lane_sender.h"
#include "tests/kvtransfer/fake_device_link.h"
#include "tests/testing/fake_clock.h"

namespace baton::kvtransfer {

// A prefill and a decode worker on one device lane and a dice: posts come and are cancelled,
// control messages arrive in any order, the device moves or fails, time passes. Each post ends
// once; what is accepted has the right bytes; a frame whose post has ended is overwritten at once,
// and that must not be seen; no group ever meets another than its own.
class LaneModel {
 public:
  explicit LaneModel(uint64_t seed) : random_(seed) {
    for (Staging& slot : decode_memory_) free_decode_.push_back(slot);
    staging_ = StagingGroups(free_decode_);
    for (size_t i = 0; i < prefill_memory_.size(); ++i) free_prefill_.push_back(i);
  }

  void Run(int64_t steps) {
    for (int64_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) Step();
  }

  // Lets everything end; then nothing may be left.
  void Finish() {
    for (int i = 0; i < 2000 && !slot_of_.empty(); ++i) {
      while (!wire_.empty()) Deliver();
      while (device_.Step()) {
      }
      Poll();
      if (i % 100 == 99) clock_.Advance(std::chrono::milliseconds(200));
    }
    while (!wire_.empty()) Deliver();
    EXPECT_EQ(slot_of_.size(), 0u) << "posts that have not ended";
    receiver_.Close();
    EXPECT_EQ(staging_.free(), decode_memory_.size()) << "staging memory is lost";
    EXPECT_EQ(device_.hangs(), 0);
  }

  int64_t accepted() const { return accepted_; }
  int64_t cancelled() const { return cancelled_; }
  int64_t failed() const { return failed_; }
  uint64_t generations() const { return sender_.generation(); }

 private:
  using Staging = std::array<std::byte, 64>;

  void Step() {
    const int64_t dice = Pick(1000);
    if (dice < 150) {
      Post();
    } else if (dice < 180) {
      if (!slot_of_.empty())
        sender_.Cancel(std::next(slot_of_.begin(), Pick(slot_of_.size()))->first);
    } else if (dice < 600) {
      if (!wire_.empty()) Deliver();
    } else if (dice < 800) {
      device_.Step();
    } else if (dice < 801) {
      device_.Fail();
    } else if (dice < 840) {
      clock_.Advance(std::chrono::milliseconds(Pick(20)));
    } else {
      Poll();
    }
    if (device_.hangs() != 0) ADD_FAILURE() << "groups were issued in different orders";
  }

  void Post() {
    if (free_prefill_.empty()) return;
    const size_t slot = free_prefill_.back();
    free_prefill_.pop_back();
    const uint64_t post = ++last_post_;
    Fill(post, prefill_memory_[slot]);
    slot_of_[post] = slot;
    sender_.Post(post, std::span(prefill_memory_[slot]).first(16 + post % 48));
  }

  static void Fill(uint64_t post, Staging& frame) {
    std::mt19937_64 bytes(post);
    std::memcpy(frame.data(), &post, sizeof(post));
    for (size_t i = sizeof(post); i < frame.size(); ++i) frame[i] = static_cast<std::byte>(bytes());
  }

  FrameVerdict OnGroup(std::span<const std::byte> frame) {
    uint64_t post = 0;
    std::memcpy(&post, frame.data(), sizeof(post));
    Staging expected;
    Fill(post, expected);
    EXPECT_EQ(frame.size(), 16 + post % 48);
    EXPECT_EQ(std::memcmp(frame.data(), expected.data(), frame.size()), 0)
        << "overwritten before it had arrived: " << post;
    EXPECT_TRUE(arrived_.insert(post).second) << "arrived twice: " << post;
    return FrameVerdict::kAccepted;
  }

  void Poll() {
    receiver_.Poll();
    for (const Completion& completion : sender_.Poll()) {
      const auto it = slot_of_.find(completion.post);
      ASSERT_NE(it, slot_of_.end()) << "ended twice: " << completion.post;
      if (completion.status.ok()) {
        EXPECT_TRUE(arrived_.contains(completion.post));
        ++accepted_;
      } else {
        ++(absl::IsCancelled(completion.status) ? cancelled_ : failed_);
      }
      prefill_memory_[it->second].fill(std::byte{0xEE});
      free_prefill_.push_back(it->second);
      slot_of_.erase(it);
    }
  }

  void Deliver() {
    const auto it = wire_.begin() + Pick(wire_.size());
    const auto [to_decode, message] = *it;
    wire_.erase(it);
    if (to_decode) {
      receiver_.OnMessage(message);
    } else {
      sender_.OnMessage(message);
    }
  }

  int64_t Pick(size_t below) { return static_cast<int64_t>(random_() % below); }

  std::mt19937_64 random_;
  testing::FakeClock clock_;
  std::array<Staging, 8> prefill_memory_{};
  std::array<Staging, 4> decode_memory_{};
  std::vector<std::span<std::byte>> free_decode_;
  StagingGroups staging_{{}};
  std::vector<size_t> free_prefill_;
  std::map<uint64_t, size_t> slot_of_;  // posts outstanding
  std::set<uint64_t> arrived_;
  uint64_t last_post_ = 0;
  int64_t accepted_ = 0;
  int64_t cancelled_ = 0;
  int64_t failed_ = 0;
  std::vector<std::pair<bool, LaneMessage>> wire_;  // to decode or not
  FakeDevice device_;
  LaneReceiver receiver_{
      {},
      device_.ReceiverEnd(),
      &staging_,
      [this](std::span<const std::byte> frame, std::string*) { return OnGroup(frame); },
      [this](LaneMessage message) { wire_.emplace_back(false, message); },
      clock_};
  LaneSender sender_{{},
                     device_.SenderEnd(),
                     [this](LaneMessage message) { wire_.emplace_back(true, message); },
                     clock_};
};

}  // namespace baton::kvtransfer
