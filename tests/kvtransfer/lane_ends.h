#pragma once

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/device_lane/lane_transport.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/shm/unix_socket.h"
#include "tests/kvtransfer/host_fabric.h"
#include "tests/kvtransfer/transport_cases.h"
#include "tests/testing/eventually.h"

// The two ends of lanes over sockets of this machine, as the workers have them.

namespace baton::kvtransfer {

inline constexpr size_t kGroupBytes = size_t{256} << 10;

// Records of whole words, as those of every real layout.
inline CacheLayout TinyWordLayout() {
  CacheLayout layout = testing::TinyLayout();
  for (StreamLayout& stream : layout.streams) {
    stream.record_bytes = (stream.record_bytes + 3) / 4 * 4;
  }
  return layout;
}

inline std::unique_ptr<Transport> NewTransport(Fabric& fabric, LaneTransportOptions options = {}) {
  options.group_bytes = kGroupBytes;
  auto transport = MakeLaneTransport(&fabric, ConnectUnixLane, options);
  EXPECT_THAT(transport, ::baton::testing::IsOk());
  return *std::move(transport);
}

inline std::unique_ptr<Sender> NewSender(Fabric& fabric, const LaneTransportOptions& options = {}) {
  return MakeSender({}, NewTransport(fabric, options));
}

inline std::unique_ptr<LaneService> StartService(Fabric& fabric, Receiver& receiver,
                                                 Incarnation incarnation) {
  absl::StatusOr<Fd> listener = shm::Listen(UnixLaneEndpoint(fabric.name(), incarnation));
  EXPECT_THAT(listener, ::baton::testing::IsOk());
  auto started =
      LaneService::Start(&fabric, &receiver, *std::move(listener), {.group_bytes = kGroupBytes});
  EXPECT_THAT(started, ::baton::testing::IsOk());
  return *std::move(started);
}

// A decode worker's end.
struct LaneServer {
  explicit LaneServer(Fabric& over, Incarnation named = NewIncarnation())
      : fabric(over), incarnation(named) {
    service = StartService(fabric, *receiver, incarnation);
  }
  std::string endpoint() const { return UnixLaneEndpoint(fabric.name(), incarnation); }

  Fabric& fabric;
  const Incarnation incarnation;
  TransferThread callbacks;
  std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  std::unique_ptr<LaneService> service;
};

}  // namespace baton::kvtransfer
