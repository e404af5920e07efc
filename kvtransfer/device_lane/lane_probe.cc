#include "kvtransfer/device_lane/lane_probe.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"

namespace baton::kvtransfer {

Probe NewProbe() {
  const Incarnation random[] = {NewIncarnation(), NewIncarnation()};
  Probe probe;
  static_assert(sizeof(random) == sizeof(probe));
  std::memcpy(probe.data(), random, sizeof(probe));
  return probe;
}

std::string ProbeAnswer(std::span<const std::byte> probe) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(probe.data()), probe.size()));
}

absl::Status CheckProbeAnswer(const Probe& probe, const std::string& answer) {
  const std::string expected = ProbeAnswer(probe);
  if (answer == expected) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("sent ", expected, " over the device, \"", answer, "\" arrived"));
}

}  // namespace baton::kvtransfer
