#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace baton::kvtransfer {

// A group of this size is no frame but a probe: random bytes that the receiving end repeats in its
// answer as hexadecimal digits, which shows that they went over the device.
inline constexpr size_t kProbeBytes = 16;
using Probe = std::array<std::byte, kProbeBytes>;

Probe NewProbe();
std::string ProbeAnswer(std::span<const std::byte> probe);
// UNAVAILABLE when the answer is to other bytes.
absl::Status CheckProbeAnswer(const Probe& probe, const std::string& answer);

}  // namespace baton::kvtransfer
