#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace baton::kvtransfer {

// The decode worker of the bench, a process of its own. It says "ready INCARNATION PORT" when its
// transports stand, then answers each line:
//   expect REQUEST TOKENS   "expecting"; later, unasked, "end REQUEST STATUS"
//   compare TOKENS SEED     "same", or what differs
//   raw GROUPS BYTES        receives groups over a bare link of nccl: "id HEX", then "received"
int RunDecode(int64_t max_tokens);

// The card of decode processes: another one where there is one.
int DecodeCard();

// Another process of the same binary, spoken to in lines, killed at the end. Where it shares its
// card with its peer it has an NCCL_HOSTID of its own.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, int card);
  ~Child();
  Child(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Say(const std::string& line);
  std::string Line();  // the next; empty when the process is gone
  std::string Ask(const std::string& line) {
    Say(line);
    return Line();
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
  std::string read_;
};

// The decode process as the bench sees it.
class DecodeProcess : public Child {
 public:
  explicit DecodeProcess(int64_t max_tokens);

  uint64_t incarnation() const { return incarnation_; }
  const std::string& grpc_address() const { return grpc_address_; }

 private:
  uint64_t incarnation_ = 0;
  std::string grpc_address_;
};

}  // namespace baton::kvtransfer
