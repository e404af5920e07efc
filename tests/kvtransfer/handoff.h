#pragma once

#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/testing/fake_records.h"

namespace baton::kvtransfer {

// Both ends of one attempt with fake records. Ends close their records, so that any later touch
// fails the test. Callbacks may come on any thread; read the results when they have come.
class Handoff {
 public:
  struct Options {
    CacheLayout layout = testing::TinyLayout();
    HandoffKey key = {.attempt = {.request = {1, 1}, .attempt = 1}, .sender = 11, .receiver = 22};
    Held held = {};
    int64_t tokens = 300;
    uint64_t seed = 1;
    std::string endpoint = "decode";
  };

  explicit Handoff(Options options)
      : options_(std::move(options)),
        source_(options_.layout, options_.seed),
        sink_(options_.layout, options_.held.entries, options_.held.state, options_.tokens) {}
  Handoff() : Handoff(Options{}) {}
  Handoff(const Handoff&) = delete;

  OutboundSpec outbound() {
    return {.key = options_.key,
            .endpoint = options_.endpoint,
            .records = &source_,
            .layout = options_.layout,
            .held = options_.held,
            .on_end = [this](absl::Status status) {
              source_.Close();
              EXPECT_FALSE(sent_.has_value()) << "ended twice: " << status;
              sent_ = std::move(status);
            }};
  }

  LandingSpec landing() {
    return {.key = options_.key,
            .records = &sink_,
            .layout = options_.layout,
            .held = options_.held,
            .tokens = options_.tokens,
            .on_end = [this](absl::Status status) {
              sink_.Close();
              EXPECT_FALSE(received_.has_value()) << "ended twice: " << status;
              received_ = std::move(status);
            }};
  }

  void Advance(Sender& sender, int64_t tokens) {
    source_.Compute(tokens);
    sender.Advance(attempt(), tokens);
  }
  void Finish(Sender& sender) {
    source_.Finish(options_.tokens);
    sender.Finish(attempt(), options_.tokens);
  }

  const AttemptId& attempt() const { return options_.key.attempt; }
  const Options& options() const { return options_; }
  testing::PatternSource& source() { return source_; }
  testing::RecordSink& sink() { return sink_; }
  const std::optional<absl::Status>& sent() const { return sent_; }
  const std::optional<absl::Status>& received() const { return received_; }
  // Empty when every byte arrived.
  std::string Problem() const { return sink_.Problem(options_.seed); }

 private:
  const Options options_;
  testing::PatternSource source_;
  testing::RecordSink sink_;
  std::optional<absl::Status> sent_;
  std::optional<absl::Status> received_;
};

}  // namespace baton::kvtransfer
