#include "kvtransfer/device_lane/paired_link.h"

#include <deque>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

class PairedLink final : public DeviceLink {
 public:
  using End = CommunicatorMaker::End;

  PairedLink(CommunicatorMaker* maker, End end, LinkSay say) : maker_(*maker), end_(end) {
    if (end == End::kSender) return;  // waits for the name
    const absl::StatusOr<std::string> id = maker_.NewId();
    broken_.Update(id.status());
    if (!id.ok()) return;
    say(*id);
    Join(*id);
  }

  void Send(uint64_t sequence, std::span<const std::byte> staging) override {
    BATON_CHECK(end_ == End::kSender) << "group " << sequence << " is sent at the receiving end";
    queue_.emplace_back(staging);
    Advance();
  }
  void Receive(uint64_t sequence, std::span<std::byte> staging) override {
    BATON_CHECK(end_ == End::kReceiver) << "group " << sequence << " is received where it is sent";
    queue_.emplace_back(staging);
    Advance();
  }
  absl::StatusOr<uint64_t> Done() override {
    Advance();
    if (!broken_.ok()) return broken_;
    return communicator_ == nullptr ? 0 : communicator_->Passed();
  }
  void OnMessage(std::string_view id) override {
    if (communicator_ == nullptr && end_ == End::kSender) Join(std::string(id));
  }

 private:
  using Group = std::variant<std::span<const std::byte>, std::span<std::byte>>;

  void Join(const std::string& id) {
    absl::StatusOr<std::unique_ptr<Communicator>> joined = maker_.Join(id, end_);
    broken_.Update(joined.status());
    if (joined.ok()) communicator_ = *std::move(joined);
  }

  // One group after the other, each when the call before has taken effect: only then does a mark
  // lie behind it.
  void Advance() {
    while (broken_.ok() && communicator_ != nullptr) {
      const absl::StatusOr<bool> ready = communicator_->Ready();
      broken_.Update(ready.status());
      if (!ready.ok() || !*ready) return;
      if (std::exchange(unmarked_, false)) communicator_->Mark();
      if (queue_.empty()) return;
      const Group group = queue_.front();
      queue_.pop_front();
      const auto* sent = std::get_if<std::span<const std::byte>>(&group);
      broken_.Update(sent != nullptr
                         ? communicator_->Send(*sent)
                         : communicator_->Receive(std::get<std::span<std::byte>>(group)));
      unmarked_ = true;
    }
  }

  CommunicatorMaker& maker_;
  const End end_;
  std::unique_ptr<Communicator> communicator_;  // null until both know its name
  std::deque<Group> queue_;                     // not enqueued on the device yet
  bool unmarked_ = false;                       // the last one has no mark behind it
  absl::Status broken_;
};

}  // namespace

std::unique_ptr<DeviceLink> MakePairedLink(CommunicatorMaker* maker, CommunicatorMaker::End end,
                                           LinkSay say) {
  return std::make_unique<PairedLink>(maker, end, std::move(say));
}

}  // namespace baton::kvtransfer
