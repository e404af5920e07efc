#pragma once

#include <memory>
#include <string>

#include "grpcpp/impl/service_type.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/executor.h"
#include "kvtransfer/receiver.h"

namespace baton::kvtransfer {

// Role: baton.v1.Transfer: hands the frames of any number of senders to a receiver and answers each
// with its verdict, in the order of the stream.
// Why: the receiving end of transport "grpc", and the way of the control lanes of others.
// Threading: thread-safe. Frames are verified and written on `transfer_thread`, never on gRPC's
// threads, which the control plane needs; memory held for it is bounded per stream (limits.h).
class TransferService {
 public:
  // Both outlive the service.
  TransferService(Receiver* receiver, Executor* transfer_thread);
  // After the server has shut down; waits for frames that are being written.
  ~TransferService();

  grpc::Service* service();

  // From now on lanes of this transport go to `service`; null: to nobody any more, once this has
  // returned.
  void ServeLanes(const std::string& transport, LaneService* service);

  // Ends each stream, UNAVAILABLE, once what it has sent is answered, and refuses new ones: an idle
  // stream must not hold up the server's shutdown. To be called when no hand-off is open any more.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kvtransfer
