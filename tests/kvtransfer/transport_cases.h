#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/fault/fault_transport.h"
#include "tests/kvtransfer/live_handoff.h"
#include "tests/testing/status_matchers.h"

// What every transport must do, whatever it is made of.

namespace baton::kvtransfer {

// What one sender hands to a receiver, which has an incarnation of its own where its address
// depends on that.
inline constexpr Incarnation kSender = 11;
inline HandoffKey Key(uint64_t request, Incarnation receiver = 22) {
  return {.attempt = {.request = {request, request}, .attempt = 1},
          .sender = kSender,
          .receiver = receiver};
}

inline void ExpectMoved(std::list<LiveHandoff>& runs) {
  for (LiveHandoff& run : runs) {
    EXPECT_THAT(run.Sent(), ::testing::Optional(testing::IsOk()));
    EXPECT_THAT(run.Received(), ::testing::Optional(testing::IsOk()));
    EXPECT_EQ(run.handoff.Problem(), "");
  }
}

// Four hand-offs of different lengths, side by side and in two steps each.
inline void MoveManyHandoffs(Sender& sender, Receiver& receiver, const std::string& endpoint,
                             const std::function<HandoffKey(uint64_t)>& key) {
  std::list<LiveHandoff> runs;
  for (uint64_t i = 0; i < 4; ++i) {
    LiveHandoff& run =
        runs.emplace_back(Handoff::Options{.layout = testing::FlashLayout(),
                                           .key = key(i),
                                           .tokens = static_cast<int64_t>(130 + 257 * i),
                                           .seed = i,
                                           .endpoint = endpoint});
    run.Expect(receiver);
    run.Open(sender);
  }
  for (LiveHandoff& run : runs) run.handoff.Advance(sender, 130);
  for (LiveHandoff& run : runs) run.handoff.Finish(sender);
  ExpectMoved(runs);
}

// A sender over `transport` that has faults of every kind that leaves an answer.
inline std::unique_ptr<Sender> MakeFaultySender(std::unique_ptr<Transport> transport) {
  const FaultRates rates = {.delay = 0.1,
                            .reorder = 0.1,
                            .duplicate = 0.1,
                            .corrupt = 0.1,
                            .max_duration = std::chrono::milliseconds(5)};
  return MakeSender({.frame_bytes = 1000, .resends = 10},
                    WithFaults(std::move(transport), RandomFaults(rates, 5)));
}

inline void MoveHandoffsThroughFaults(Sender& sender, Receiver& receiver,
                                      const std::string& endpoint,
                                      const std::function<HandoffKey(uint64_t)>& key,
                                      const CacheLayout& layout = testing::TinyLayout()) {
  std::list<LiveHandoff> runs;
  for (uint64_t i = 0; i < 5; ++i) {
    LiveHandoff& run = runs.emplace_back(Handoff::Options{
        .layout = layout, .key = key(i), .tokens = 3000, .seed = i, .endpoint = endpoint});
    run.Expect(receiver);
    run.Open(sender);
    run.handoff.Finish(sender);
  }
  ExpectMoved(runs);
}

}  // namespace baton::kvtransfer
