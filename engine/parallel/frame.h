#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/parallel/step_board.h"

// What ranks say to one another. A frame is a header of 24 bytes, little-endian,
//   magic u32 | type u8 | from u8 | to u8 | 0 u8 | number u64 | payload bytes u64
// and its payload.

namespace baton::engine {

// To be raised when frames, or the order in which ranks exchange rows, change.
inline constexpr int kFrameProtocol = 2;

enum class FrameType : uint8_t {
  kHello = 1,  // facts of a rank that wants to join
  kWelcome,    // all are here
  kRefusal,    // text
  kPulse,      // still alive
  kWish,       // a pass of one rank. Number: the last step it knows of
  kStep,       // a pass of all. Number: of the step
  kRows,       // part of an exchange, forwarded by rank 0. Number: of the exchange
  kLeaving,    // has nothing to compute any more, joins until all have
  kDissolved,  // all are leaving
  kFault,      // text: the group has ended
};

struct Frame {
  FrameType type = FrameType::kPulse;
  int from = 0;
  int to = 0;
  uint64_t number = 0;
  std::vector<std::byte> payload = {};

  static constexpr size_t kHeaderBytes = 24;
  static constexpr uint64_t kMaxGreeting = uint64_t{64} << 10;
  static constexpr uint64_t kMaxPayload = uint64_t{1} << 30;
};

using FrameHeader = std::vector<std::byte>;
FrameHeader EncodeHeader(const Frame& frame, size_t payload_bytes);

// Takes bytes as they come and gives back frames: small ones until the sender is known to be a
// rank.
class FrameReader {
 public:
  void Trust() { max_payload_ = Frame::kMaxPayload; }
  void Append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  // Empty until a whole frame has come. INVALID_ARGUMENT: this is no rank of ours.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  std::vector<std::byte> buffer_;
  uint64_t max_payload_ = Frame::kMaxGreeting;
};

// Payloads. The decoders' errors name what is wrong.

using Facts = std::vector<std::pair<std::string, std::string>>;

std::vector<std::byte> EncodeText(const std::string& text);
std::string DecodeText(std::span<const std::byte> payload);
std::vector<std::byte> EncodeFacts(const Facts& facts);
Facts DecodeFacts(std::span<const std::byte> payload);
//   kind u8 | rows i64 of each rank | sequence_rows i64 | positions i64
// is a step but for its number, and a wish as a step of one rank.
std::vector<std::byte> EncodePass(const Step& step);
// All rows in [kResting, kMaxRows], of a pass that may grow up to kMaxStepRows; sequence_rows in
// [0, kMaxSequenceRows], positions in [0, max_positions].
absl::StatusOr<Step> DecodePass(std::span<const std::byte> payload, size_t ranks,
                                int64_t max_positions);

}  // namespace baton::engine
