#include "kvtransfer/device_lane/copy_link.h"

#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

// Both ends are processes of one machine: structs travel as they are in memory.
struct Placed {
  uint64_t number = 0;  // of the group, from 1
  uint64_t offset = 0;  // in the sender's staging memory
  uint64_t bytes = 0;
};
struct Copied {
  uint64_t count = 0;  // of the groups
};

template <typename Message>
std::string Pack(const Message& message) {
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}
template <typename Message>
bool Unpack(std::string_view bytes, Message* message) {
  if (bytes.size() != sizeof(*message)) return false;
  std::memcpy(message, bytes.data(), sizeof(*message));
  return true;
}

class CopySender final : public DeviceLink {
 public:
  CopySender(std::span<const std::byte> own, LinkSay say) : own_(own), say_(std::move(say)) {}

  void Send(uint64_t, std::span<const std::byte> staging) override {
    const auto offset = static_cast<uint64_t>(staging.data() - own_.data());
    BATON_CHECK(offset <= own_.size() && staging.size() <= own_.size() - offset) << offset;
    say_(Pack(Placed{.number = ++sent_, .offset = offset, .bytes = staging.size()}));
  }
  void Receive(uint64_t sequence, std::span<std::byte>) override {
    BATON_CHECK(false) << "group " << sequence << " is received at the sending end";
  }
  absl::StatusOr<uint64_t> Done() override {
    if (!broken_.ok()) return broken_;
    return copied_;
  }
  void OnMessage(std::string_view bytes) override {
    Copied copied;
    if (!Unpack(bytes, &copied) || copied.count > sent_) {
      broken_ = absl::UnavailableError("the peer has copied what was not sent");
      return;
    }
    copied_ = std::max(copied_, copied.count);
  }

 private:
  const std::span<const std::byte> own_;
  const LinkSay say_;
  uint64_t sent_ = 0;
  uint64_t copied_ = 0;
  absl::Status broken_;
};

class CopyReceiver final : public DeviceLink {
 public:
  CopyReceiver(std::span<const std::byte> peer, std::unique_ptr<CopyEngine> engine, LinkSay say)
      : peer_(peer), engine_(std::move(engine)), say_(std::move(say)) {}

  void Send(uint64_t sequence, std::span<const std::byte>) override {
    BATON_CHECK(false) << "group " << sequence << " is sent at the receiving end";
  }
  void Receive(uint64_t, std::span<std::byte> staging) override {
    receives_.push_back(staging);
    StartReady();
  }
  absl::StatusOr<uint64_t> Done() override {
    if (!broken_.ok()) return broken_;
    const uint64_t finished = engine_->Finished();
    if (finished > told_) say_(Pack(Copied{.count = told_ = finished}));
    return finished;
  }
  void OnMessage(std::string_view bytes) override {
    Placed placed;
    const bool fits = Unpack(bytes, &placed) && placed.offset <= peer_.size() &&
                      placed.bytes <= peer_.size() - placed.offset;
    const bool expected =
        placed.number > started_ && placed.number - started_ <= kMaxGroupsInFlight;
    if (!fits || !expected || !placed_.try_emplace(placed.number, placed).second) {
      broken_ = absl::UnavailableError(
          absl::StrCat("group ", placed.number, " of ", placed.bytes, " bytes at ", placed.offset,
                       " lies outside of the peer's memory, is sent twice or too early"));
      return;
    }
    StartReady();
  }

 private:
  // The n-th group that was sent is the n-th that is received.
  void StartReady() {
    while (!receives_.empty() && placed_.contains(started_ + 1)) {
      const Placed placed = placed_.at(++started_);
      placed_.erase(started_);
      const std::span<std::byte> to = receives_.front();
      receives_.pop_front();
      if (placed.bytes != to.size()) {
        broken_ = absl::UnavailableError(absl::StrCat("group ", started_, " has ", placed.bytes,
                                                      " bytes, expected ", to.size()));
        return;
      }
      engine_->Start(to.data(), peer_.data() + placed.offset, placed.bytes);
    }
  }

  const std::span<const std::byte> peer_;
  const std::unique_ptr<CopyEngine> engine_;
  const LinkSay say_;
  std::map<uint64_t, Placed> placed_;  // by number, not started
  std::deque<std::span<std::byte>> receives_;
  uint64_t started_ = 0;
  uint64_t told_ = 0;
  absl::Status broken_;
};

}  // namespace

std::unique_ptr<DeviceLink> MakeCopySender(std::span<const std::byte> own, LinkSay say) {
  return std::make_unique<CopySender>(own, std::move(say));
}

std::unique_ptr<DeviceLink> MakeCopyReceiver(std::span<const std::byte> peer,
                                             std::unique_ptr<CopyEngine> engine, LinkSay say) {
  return std::make_unique<CopyReceiver>(peer, std::move(engine), std::move(say));
}

}  // namespace baton::kvtransfer
