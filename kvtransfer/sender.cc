#include "kvtransfer/sender.h"

#include <thread>
#include <utility>

#include "kvtransfer/frame_sender.h"

namespace baton::kvtransfer {
namespace {

class ThreadedSender final : public FrameSender {
 public:
  ThreadedSender(const SenderOptions& options, std::unique_ptr<Transport> transport,
                 const Clock& clock)
      : FrameSender(options, std::move(transport), clock), thread_([this] { Loop(); }) {}

  ~ThreadedSender() override {
    BeginShutdown();
    thread_.join();
  }

 private:
  void Loop() {
    while (!ShutDown()) {
      if (!Step()) Wait();
    }
  }

  std::thread thread_;
};

}  // namespace

std::unique_ptr<Sender> MakeSender(const SenderOptions& options,
                                   std::unique_ptr<Transport> transport, const Clock& clock) {
  return std::make_unique<ThreadedSender>(options, std::move(transport), clock);
}

}  // namespace baton::kvtransfer
