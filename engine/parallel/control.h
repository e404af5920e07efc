#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/wakeup.h"
#include "engine/parallel/frame.h"
#include "engine/parallel/rendezvous.h"

namespace baton::engine {

// The connections of a rank and the thread that reads them: it hands frames on, shows that this
// process is alive, and notices when another is not.
class Control {
 public:
  // All called by the control thread.
  struct Handler {
    // A frame for this rank. An error is the sender's fault.
    std::function<absl::Status(int sender, Frame frame)> on_frame;
    // Several times a second. An error ends the group.
    std::function<absl::Status()> on_tick;
    // The group has ended, the others have been told why. Nothing is called afterwards.
    std::function<void(const absl::Status& why)> on_fault;
  };
  // Rank 0 has a link to each other rank, in ascending order; the others have one to rank 0, which
  // forwards what is not for itself.
  Control(int rank, std::vector<Link> links, Wakeup wakeup, std::chrono::nanoseconds silence,
          Handler handler);
  // Closes the connections. The handler may be called until then.
  ~Control();

  // Starts the thread. Before anything else; the handler is called from now on.
  void Start();

  // --- Any thread.

  // To a rank other than this one. A failure is a fault of the rank behind the connection.
  void Send(int to, Frame frame, std::span<const std::byte> payload);
  void SendToAll(const Frame& frame);  // of rank 0's links
  // Ends the group, unless it ends already or Relax was called.
  void Fail(const absl::Status& why);
  // Connections may be closed from now on: that is no fault any more.
  void Relax();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
