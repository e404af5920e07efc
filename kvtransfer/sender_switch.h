#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/ids.h"
#include "kvtransfer/sender.h"

namespace baton::kvtransfer {

// One sender for each transport behind one interface: an attempt goes over the transport that its
// grant names. Keeps nothing: senders ignore attempts that they do not have.
class SenderSwitch final : public Sender {
 public:
  struct Way {
    std::unique_ptr<Sender> sender;
    // The transport's address of a receiver; without one, OutboundSpec::endpoint is it.
    std::function<std::string(Incarnation receiver)> endpoint;
  };
  using Ways = std::map<std::string, Way>;  // by transport

  explicit SenderSwitch(Ways ways) : ways_(std::move(ways)) {}

  // FAILED_PRECONDITION for a transport that is not there.
  absl::Status Open(OutboundSpec spec) override;
  void Advance(const AttemptId& attempt, int64_t tokens) override;
  void Finish(const AttemptId& attempt, int64_t tokens) override;
  void Cancel(const AttemptId& attempt, absl::Status why) override;
  SenderStats stats() const override;

 private:
  const Ways ways_;
};

}  // namespace baton::kvtransfer
