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

SenderStats& SenderStats::operator+=(const SenderStats& other) {
  frames_posted += other.frames_posted;
  frames_resent += other.frames_resent;
  for (int i = 0; i < kFrameVerdictCount; ++i) frames_by_verdict[i] += other.frames_by_verdict[i];
  posts_failed += other.posts_failed;
  payload_bytes += other.payload_bytes;
  attempts_ok += other.attempts_ok;
  attempts_failed += other.attempts_failed;
  attempts_open += other.attempts_open;
  frames_in_flight += other.frames_in_flight;
  return *this;
}

std::unique_ptr<Sender> MakeSender(const SenderOptions& options,
                                   std::unique_ptr<Transport> transport, const Clock& clock) {
  return std::make_unique<ThreadedSender>(options, std::move(transport), clock);
}

}  // namespace baton::kvtransfer
