#include "engine/parallel/frame.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x47504542;  // "BEPG"

template <typename T>
void Put(T value, std::vector<std::byte>& to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(T));
}

template <typename T>
T Get(std::span<const std::byte> from, size_t offset) {
  T value;
  std::memcpy(&value, from.data() + offset, sizeof(T));
  return value;
}

}  // namespace

FrameHeader EncodeHeader(const Frame& frame, size_t payload_bytes) {
  FrameHeader header;
  header.reserve(Frame::kHeaderBytes);
  Put(kMagic, header);
  Put(frame.type, header);
  Put(static_cast<uint8_t>(frame.from), header);
  Put(static_cast<uint8_t>(frame.to), header);
  Put(uint8_t{0}, header);
  Put(frame.number, header);
  Put(uint64_t{payload_bytes}, header);
  return header;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  if (buffer_.size() < Frame::kHeaderBytes) return std::nullopt;
  const std::span<const std::byte> bytes(buffer_);
  Frame frame{.type = Get<FrameType>(bytes, 4),
              .from = Get<uint8_t>(bytes, 5),
              .to = Get<uint8_t>(bytes, 6),
              .number = Get<uint64_t>(bytes, 8)};
  const auto payload = Get<uint64_t>(bytes, 16);
  if (Get<uint32_t>(bytes, 0) != kMagic || frame.type < FrameType::kHello ||
      frame.type > FrameType::kFault || payload > max_payload_) {
    return absl::InvalidArgumentError("does not speak as a rank of an expert-parallel group");
  }
  const size_t end = Frame::kHeaderBytes + payload;
  if (buffer_.size() < end) return std::nullopt;
  const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>(Frame::kHeaderBytes);
  frame.payload.assign(first, buffer_.begin() + static_cast<std::ptrdiff_t>(end));
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(end));
  return frame;
}

std::vector<std::byte> EncodeText(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string DecodeText(std::span<const std::byte> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

std::vector<std::byte> EncodeFacts(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) absl::StrAppend(&text, name, "=", value, "\n");
  return EncodeText(text);
}

Facts DecodeFacts(std::span<const std::byte> payload) {
  Facts facts;
  const std::string text = DecodeText(payload);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> fact = absl::StrSplit(line, absl::MaxSplits('=', 1));
    facts.push_back(fact);
  }
  return facts;
}

std::vector<std::byte> EncodePass(const Step& step) {
  std::vector<std::byte> payload;
  Put(step.kind, payload);
  for (const int64_t rows : step.rows) Put(rows, payload);
  Put(step.sequence_rows, payload);
  Put(step.positions, payload);
  return payload;
}

absl::StatusOr<Step> DecodePass(std::span<const std::byte> payload, size_t ranks,
                                int64_t max_positions) {
  if (payload.size() != 1 + (ranks + 2) * sizeof(int64_t)) {
    return absl::InvalidArgumentError(absl::StrCat("sends a pass in ", payload.size(), " bytes"));
  }
  Step step{.kind = Get<PassKind>(payload, 0)};
  if (step.kind > PassKind::kTrunk) {
    return absl::InvalidArgumentError("asks for an unknown kind of pass");
  }
  const auto number = [&](size_t i) { return Get<int64_t>(payload, 1 + i * sizeof(int64_t)); };
  step.sequence_rows = number(ranks);
  step.positions = number(ranks + 1);
  const int64_t max_rows = step.same_shape() ? Wish::kMaxStepRows : Wish::kMaxRows;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int64_t rows = number(rank);
    if (rows < Wish::kResting || rows > max_rows) {
      return absl::InvalidArgumentError(absl::StrCat("asks for a pass of ", rows, " rows"));
    }
    step.rows.push_back(rows);
  }
  if (step.sequence_rows < 0 || step.sequence_rows > Wish::kMaxSequenceRows || step.positions < 0 ||
      step.positions > max_positions) {
    return absl::InvalidArgumentError(absl::StrCat("asks for sequences of ", step.sequence_rows,
                                                   " rows and ", step.positions, " positions"));
  }
  return step;
}

}  // namespace baton::engine
