#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/device_lane/device_link.h"
#include "kvtransfer/device_lane/lane_messages.h"

namespace baton::kvtransfer {

// One end's part in the generations of a lane (lane_messages.h): the number, and the link, which is
// made once both ends are in the same one. What hangs on the link is the end's own. One thread;
// `send` is called from within and must not call back.
class LaneGeneration {
 public:
  // Says Reset of the first.
  LaneGeneration(DeviceLinkFactory factory, std::function<void(LaneMessage)> send);
  LaneGeneration(const LaneGeneration&) = delete;
  LaneGeneration& operator=(const LaneGeneration&) = delete;

  uint64_t number() const { return number_; }
  DeviceLink* link() const { return link_.get(); }  // null while the generation begins
  template <typename Body>
  void Say(Body body) const {
    send_({number_, std::move(body)});
  }

  // The peer is in this generation too: makes the link.
  void OnReset();
  // False: the peer says too much to a link that is not there yet.
  [[nodiscard]] bool OnLink(const LaneLink& message);

  // Aborts the link. Nothing but Begin or the end follows.
  void Abort();
  // Aborts the link and says Reset of a later generation.
  void Begin(uint64_t number);

 private:
  const DeviceLinkFactory factory_;
  const std::function<void(LaneMessage)> send_;

  uint64_t number_ = 1;
  std::vector<std::string> early_;  // said to a link that is not there yet
  std::unique_ptr<DeviceLink> link_;
};

}  // namespace baton::kvtransfer
