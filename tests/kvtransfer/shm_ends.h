#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "common/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/shm/shm_service.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/shm/wire.h"
#include "tests/kvtransfer/transport_cases.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

// The two ends of transport shm, as the workers have them.

namespace baton::kvtransfer {

inline std::unique_ptr<Transport> NewTransport() {
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeShmTransport();
  EXPECT_THAT(transport, ::baton::testing::IsOk());
  return *std::move(transport);
}

// A decode worker's end.
struct ShmServer {
  ShmServer() {
    auto started = ShmService::Start(receiver.get(), incarnation);
    EXPECT_THAT(started, ::baton::testing::IsOk());
    service = *std::move(started);
  }
  std::string endpoint() const { return shm::Endpoint(incarnation); }

  const Incarnation incarnation = NewIncarnation();
  TransferThread callbacks;
  std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  std::unique_ptr<ShmService> service;
};

inline std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace baton::kvtransfer
