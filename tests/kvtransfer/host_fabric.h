#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mutex.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/copy_link.h"
#include "kvtransfer/device_lane/fabric.h"
#include "kvtransfer/device_lane/paired_link.h"
#include "kvtransfer/shm/arena.h"

// What stands for a device where there is none, so that everything else of a device transport runs.

namespace baton::kvtransfer {

inline StagingMemory AllocateMemfd(size_t bytes) {
  StagingMemory memory;
  memory.exported = Fd(memfd_create("baton-staging", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(memory.exported.get(), static_cast<off_t>(bytes)), 0);
  auto mapping =
      std::make_shared<shm::Mapping>(*shm::Mapping::Create(memory.exported, bytes, true));
  memory.bytes = mapping->bytes();
  memory.owner = std::shared_ptr<std::byte>(mapping, mapping->bytes().data());
  return memory;
}

// As cuda_ipc: memory that another process maps and copies out of.
class SharedHostFabric final : public Fabric {
 public:
  const std::string& name() const override { return name_; }
  std::chrono::nanoseconds patience() const override { return std::chrono::milliseconds(500); }
  absl::StatusOr<StagingMemory> Allocate(size_t bytes) override { return AllocateMemfd(bytes); }
  std::unique_ptr<RecordMover> NewMover() override { return MakeHostMover(); }

  DeviceLinkFactory SenderEnd(const StagingMemory& own) override {
    return [bytes = std::span<const std::byte>(own.bytes)](uint64_t, LinkSay say) {
      return MakeCopySender(bytes, std::move(say));
    };
  }
  absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const Fd& memory, uint64_t bytes) override {
    struct stat about {};
    if (!memory.valid() || fstat(memory.get(), &about) != 0 ||
        static_cast<uint64_t>(about.st_size) < bytes) {
      return absl::UnavailableError("no memory of that size came");
    }
    absl::StatusOr<shm::Mapping> mapping = shm::Mapping::Create(memory, bytes, false);
    if (!mapping.ok()) return mapping.status();
    auto peer = std::make_shared<shm::Mapping>(*std::move(mapping));
    return [this, peer](uint64_t, LinkSay say) {
      return MakeCopyReceiver(peer->bytes(), std::make_unique<Copies>(*this, peer), std::move(say));
    };
  }

  // Copies that start from now on end only when this is undone.
  std::atomic<bool> stuck = false;

 private:
  class Copies final : public CopyEngine {
   public:
    Copies(const SharedHostFabric& fabric, std::shared_ptr<shm::Mapping> peer)
        : fabric_(fabric), peer_(std::move(peer)) {}
    void Start(std::byte* to, const std::byte* from, size_t bytes) override {
      std::memcpy(to, from, bytes);
      ++started_;
    }
    uint64_t Finished() override {
      if (!fabric_.stuck) finished_ = started_;
      return finished_;
    }

   private:
    const SharedHostFabric& fabric_;
    const std::shared_ptr<shm::Mapping> peer_;
    uint64_t started_ = 0;
    uint64_t finished_ = 0;
  };

  const std::string name_ = "cuda_ipc";
};

// As nccl: communicators of two that pair sends and receives by order; each is joined and every
// first call takes effect a little later. Both ends must be in this process.
class PairedHostFabric final : public Fabric, private CommunicatorMaker {
 public:
  const std::string& name() const override { return name_; }
  std::chrono::nanoseconds patience() const override { return std::chrono::milliseconds(500); }
  absl::StatusOr<StagingMemory> Allocate(size_t bytes) override {
    StagingMemory memory = AllocateMemfd(bytes);
    memory.exported = Fd();
    return memory;
  }
  std::unique_ptr<RecordMover> NewMover() override { return MakeHostMover(); }
  DeviceLinkFactory SenderEnd(const StagingMemory&) override { return EndOf(End::kSender); }
  absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const Fd&, uint64_t) override {
    return EndOf(End::kReceiver);
  }

  // Every communicator there is reports a fault from now on.
  void Fail() {
    MutexLock lock(mutex_);
    for (auto& [id, wire] : wires_) wire->failed = true;
  }
  size_t made() const {
    MutexLock lock(mutex_);
    return wires_.size();
  }

 private:
  struct Wire {
    int joined = 0;
    bool failed = false;
    bool aborted = false;
    std::deque<std::span<const std::byte>> sends;
    std::deque<std::span<std::byte>> receives;
    uint64_t done = 0;
  };

  class Half final : public Communicator {
   public:
    Half(Mutex& mutex, std::shared_ptr<Wire> wire) : mutex_(mutex), wire_(std::move(wire)) {
      MutexLock lock(mutex_);
      ++wire_->joined;
    }
    ~Half() override {
      MutexLock lock(mutex_);
      wire_->aborted = true;
    }
    absl::StatusOr<bool> Ready() override {
      MutexLock lock(mutex_);
      if (wire_->failed) return absl::UnavailableError("the communicator reports a fault");
      return wire_->joined == 2 && ++asked_ % 3 == 0;
    }
    absl::Status Send(std::span<const std::byte> bytes) override {
      MutexLock lock(mutex_);
      wire_->sends.push_back(bytes);
      return Enqueued();
    }
    absl::Status Receive(std::span<std::byte> bytes) override {
      MutexLock lock(mutex_);
      wire_->receives.push_back(bytes);
      return Enqueued();
    }
    void Mark() override { EXPECT_EQ(++marks_, enqueued_) << "a mark that stands for two groups"; }
    uint64_t Passed() override {
      MutexLock lock(mutex_);
      while (!wire_->aborted && !wire_->sends.empty() && !wire_->receives.empty()) {
        EXPECT_EQ(wire_->sends.front().size(), wire_->receives.front().size());
        std::memcpy(wire_->receives.front().data(), wire_->sends.front().data(),
                    wire_->sends.front().size());
        wire_->sends.pop_front();
        wire_->receives.pop_front();
        ++wire_->done;
      }
      return std::min<uint64_t>(wire_->done, marks_);
    }

   private:
    absl::Status Enqueued() {
      asked_ = 0;
      ++enqueued_;
      return absl::OkStatus();
    }

    Mutex& mutex_;
    const std::shared_ptr<Wire> wire_;
    int asked_ = 0;
    uint64_t enqueued_ = 0;
    uint64_t marks_ = 0;
  };

  absl::StatusOr<std::string> NewId() override {
    MutexLock lock(mutex_);
    std::string id = std::to_string(wires_.size() + 1);
    wires_[id] = std::make_shared<Wire>();
    return id;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Join(const std::string& id, End) override {
    std::shared_ptr<Wire> wire;
    {
      MutexLock lock(mutex_);
      if (!wires_.contains(id)) return absl::UnavailableError("nobody has this name");
      wire = wires_[id];
    }
    return std::make_unique<Half>(mutex_, std::move(wire));
  }
  DeviceLinkFactory EndOf(End end) {
    return [this, end](uint64_t, LinkSay say) { return MakePairedLink(this, end, std::move(say)); };
  }

  const std::string name_ = "nccl";
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Wire>> wires_ ABSL_GUARDED_BY(mutex_);  // by id
};

}  // namespace baton::kvtransfer
