#include "kvtransfer/device_lane/lane_channel.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kMaxText = 512;

enum class Kind : uint32_t {
  kHello = 1,
  kOffer,
  kGrant,
  kCommit,
  kDecline,
  kAnswer,
  kReset,
  kLink
};

// Every message: this, little-endian as in memory, then text.
struct Packet {
  uint32_t kind = 0;
  uint32_t detail = 0;  // version of a Hello, verdict of an Answer
  uint64_t generation = 0;
  uint64_t post = 0;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

static_assert(sizeof(Packet) + kMaxText == kMaxLaneMessageBytes);

struct Encoded {
  Packet packet;
  std::string text{};
};

Packet Of(Kind kind) { return {.kind = static_cast<uint32_t>(kind)}; }

Encoded Encode(const LaneOffer& offer) {
  Packet packet = Of(Kind::kOffer);
  packet.post = offer.post;
  packet.bytes = offer.bytes;
  return {packet};
}
Encoded Encode(const LaneGrant& grant) {
  Packet packet = Of(Kind::kGrant);
  packet.post = grant.post;
  packet.sequence = grant.sequence;
  return {packet};
}
Encoded Encode(const LaneCommit& commit) {
  Packet packet = Of(Kind::kCommit);
  packet.sequence = commit.sequence;
  return {packet};
}
Encoded Encode(const LaneDecline& decline) {
  Packet packet = Of(Kind::kDecline);
  packet.sequence = decline.sequence;
  return {packet};
}
Encoded Encode(const LaneAnswer& answer) {
  Packet packet = Of(Kind::kAnswer);
  packet.sequence = answer.sequence;
  packet.detail = static_cast<uint32_t>(answer.verdict);
  return {packet, answer.detail};
}
Encoded Encode(const LaneReset&) { return {Of(Kind::kReset)}; }
Encoded Encode(const LaneLink& link) { return {Of(Kind::kLink), link.bytes}; }

absl::StatusOr<LaneMessage> Decode(const Packet& packet, std::string text) {
  const uint64_t generation = packet.generation;
  switch (static_cast<Kind>(packet.kind)) {
    case Kind::kOffer:
      return LaneMessage{generation, LaneOffer{.post = packet.post, .bytes = packet.bytes}};
    case Kind::kGrant:
      return LaneMessage{generation, LaneGrant{.post = packet.post, .sequence = packet.sequence}};
    case Kind::kCommit:
      return LaneMessage{generation, LaneCommit{packet.sequence}};
    case Kind::kDecline:
      return LaneMessage{generation, LaneDecline{packet.sequence}};
    case Kind::kAnswer:
      if (packet.detail >= kFrameVerdictCount) break;
      return LaneMessage{generation, LaneAnswer{.sequence = packet.sequence,
                                                .verdict = static_cast<FrameVerdict>(packet.detail),
                                                .detail = std::move(text)}};
    case Kind::kReset:
      return LaneMessage{generation, LaneReset{}};
    case Kind::kLink:
      return LaneMessage{generation, LaneLink{std::move(text)}};
    case Kind::kHello:
      break;
  }
  return absl::UnavailableError(
      absl::StrCat("a message of kind ", packet.kind, " and detail ", packet.detail));
}

std::string Bytes(const Packet& packet, std::string_view text) {
  std::string bytes(reinterpret_cast<const char*>(&packet), sizeof(packet));
  return bytes.append(text.substr(0, kMaxText));
}

}  // namespace

std::string EncodeLaneHello(std::string_view transport, uint64_t bytes) {
  Packet hello = Of(Kind::kHello);
  hello.detail = kVersion;
  hello.bytes = bytes;
  return Bytes(hello, transport);
}

std::string EncodeLaneMessage(const LaneMessage& message) {
  Encoded encoded = std::visit([](const auto& body) { return Encode(body); }, message.body);
  encoded.packet.generation = message.generation;
  return Bytes(encoded.packet, encoded.text);
}

LaneChannel::Received DecodeLaneMessage(std::span<const std::byte> bytes, Fd passed) {
  Packet packet;
  if (bytes.size() < sizeof(packet)) return absl::UnavailableError("a message is too short");
  std::memcpy(&packet, bytes.data(), sizeof(packet));
  const auto* const rest = reinterpret_cast<const char*>(bytes.data()) + sizeof(packet);
  std::string text(rest, bytes.size() - sizeof(packet));
  if (packet.kind == static_cast<uint32_t>(Kind::kHello)) {
    if (packet.detail != kVersion) {
      return absl::UnavailableError(
          absl::StrCat("version ", packet.detail, " of the protocol; expected ", kVersion));
    }
    return LaneHello{std::move(text), packet.bytes, std::move(passed)};
  }
  absl::StatusOr<LaneMessage> decoded = Decode(packet, std::move(text));
  if (!decoded.ok()) return decoded.status();
  return *std::move(decoded);
}

}  // namespace baton::kvtransfer
