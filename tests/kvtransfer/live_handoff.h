#pragma once

#include <future>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/kvtransfer/handoff.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {

// A hand-off whose ends can be waited for.
struct LiveHandoff {
  explicit LiveHandoff(Handoff::Options options) : handoff(std::move(options)) {}

  void Expect(Receiver& receiver) {
    LandingSpec landing = handoff.landing();
    landing.on_end = [this, inner = std::move(landing.on_end)](absl::Status status) {
      inner(std::move(status));
      received.set_value();
    };
    ASSERT_THAT(receiver.Expect(std::move(landing)), ::baton::testing::IsOk());
  }
  void Open(Sender& sender) {
    OutboundSpec outbound = handoff.outbound();
    outbound.on_end = [this, inner = std::move(outbound.on_end)](absl::Status status) {
      inner(std::move(status));
      sent.set_value();
    };
    ASSERT_THAT(sender.Open(std::move(outbound)), ::baton::testing::IsOk());
  }
  const std::optional<absl::Status>& Sent() {
    sent.get_future().wait();
    return handoff.sent();
  }
  const std::optional<absl::Status>& Received() {
    received.get_future().wait();
    return handoff.received();
  }

  Handoff handoff;
  std::promise<void> sent;
  std::promise<void> received;
};

}  // namespace baton::kvtransfer
