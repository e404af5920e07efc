#include "kvtransfer/fault/fault_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "spdlog/spdlog.h"
#include "yaml-cpp/yaml.h"

namespace baton::kvtransfer {
namespace {

using Kind = Fault::Kind;
// What to do with the value of a key, by key.
using Keys = std::map<std::string, std::function<absl::Status(const YAML::Node&)>>;

enum class Plane { kFrames, kControl };

struct NamedKind {
  const char* name;
  Kind kind;
  double FaultRates::*rate;
};
constexpr NamedKind kKinds[] = {
    {"drop", Kind::kDrop, &FaultRates::drop},
    {"drop-answer", Kind::kDropAnswer, &FaultRates::drop_answer},
    {"delay", Kind::kDelay, &FaultRates::delay},
    {"reorder", Kind::kReorder, &FaultRates::reorder},
    {"duplicate", Kind::kDuplicate, &FaultRates::duplicate},
    {"corrupt", Kind::kCorrupt, &FaultRates::corrupt},
    {"stall", Kind::kStall, &FaultRates::stall},
    {"cut", Kind::kCut, &FaultRates::cut},
    {"fail", Kind::kFail, &FaultRates::fail},
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<FaultPlanFile> Read(const YAML::Node& root) const {
    FaultPlanFile file;
    int64_t seed = 1;
    BATON_RETURN_IF_ERROR(ForEach(
        root, "the plan",
        {{"seed", [&](const YAML::Node& node) { return Integer(node, "seed", 0, &seed); }},
         {"frames",
          [&](const YAML::Node& node) { return ReadPlane(node, Plane::kFrames, &file.frames); }},
         {"control", [&](const YAML::Node& node) {
            return ReadPlane(node, Plane::kControl, &file.control);
          }}}));
    file.frames.seed = static_cast<uint64_t>(seed);
    file.control.seed = static_cast<uint64_t>(seed) + 1;
    return file;
  }

 private:
  absl::Status ReadPlane(const YAML::Node& node, Plane plane, PlaneFaults* faults) const {
    Keys keys;
    double sum = 0;
    for (const NamedKind& kind : kKinds) {
      if (!Has(plane, kind.kind)) continue;
      keys[kind.name] = [&, kind](const YAML::Node& value) -> absl::Status {
        double& rate = faults->rates.*kind.rate;
        if (!absl::SimpleAtod(Text(value), &rate) || !(rate >= 0 && rate <= 1)) {
          return Wrong(value, kind.name, "a probability, 0 to 1");
        }
        sum += rate;
        return absl::OkStatus();
      };
    }
    keys["max-duration"] = [&](const YAML::Node& value) {
      return Duration(value, "max-duration", &faults->rates.max_duration);
    };
    keys["at"] = [&](const YAML::Node& list) -> absl::Status {
      if (!list.IsSequence()) return Wrong(list, "at", "a list of {n: 1, fault: ...}");
      for (const YAML::Node& entry : list) {
        BATON_RETURN_IF_ERROR(ReadNth(entry, plane, &faults->at.emplace_back()));
      }
      return absl::OkStatus();
    };
    const char* const name = plane == Plane::kFrames ? "frames" : "control";
    BATON_RETURN_IF_ERROR(ForEach(node, name, keys));
    if (sum > 1) return Error(node, absl::StrCat(name, ": probabilities add up to ", sum));
    faults->active = sum > 0 || !faults->at.empty();
    return absl::OkStatus();
  }

  absl::Status ReadNth(const YAML::Node& node, Plane plane, NthFault* nth) const {
    nth->fault.duration = FaultRates().max_duration;
    int64_t bit = 0;
    Keys keys = {
        {"n", [&](const YAML::Node& value) { return Integer(value, "n", 1, &nth->n); }},
        {"bit", [&](const YAML::Node& value) { return Integer(value, "bit", 0, &bit); }},
        {"duration",
         [&](const YAML::Node& value) {
           return Duration(value, "duration", &nth->fault.duration);
         }},
        {"fault", [&](const YAML::Node& value) { return FaultKind(value, plane, nth); }},
    };
    if (plane == Plane::kControl) {
      keys["message"] = [&](const YAML::Node& value) -> absl::Status {
        nth->message = Text(value);
        return nth->message.empty() ? Wrong(value, "message", "a name such as grant")
                                    : absl::OkStatus();
      };
    }
    BATON_RETURN_IF_ERROR(ForEach(node, "at", keys));
    nth->fault.bit = static_cast<uint64_t>(bit);
    return nth->fault.kind == Kind::kNone ? Error(node, "at: no fault is named") : absl::OkStatus();
  }

  absl::Status FaultKind(const YAML::Node& value, Plane plane, NthFault* nth) const {
    std::vector<std::string> known;
    for (const NamedKind& kind : kKinds) {
      if (!Has(plane, kind.kind)) continue;
      if (Normal(Text(value)) == kind.name) nth->fault.kind = kind.kind;
      known.push_back(kind.name);
    }
    return nth->fault.kind == Kind::kNone
               ? Wrong(value, "fault", absl::StrCat("one of ", absl::StrJoin(known, ", ")))
               : absl::OkStatus();
  }

  // Messages of a stream have no answers.
  static bool Has(Plane plane, Kind kind) {
    return plane == Plane::kFrames || kind != Kind::kDropAnswer;
  }

  absl::Status ForEach(const YAML::Node& map, const std::string& name, const Keys& keys) const {
    if (!map.IsMap()) return Error(map, absl::StrCat(name, ": expected \"key: value\" lines"));
    for (const auto& entry : map) {
      const YAML::Node& key = entry.first;
      const auto it = keys.find(Normal(Text(key)));
      if (it == keys.end()) {
        return Error(key, absl::StrCat("unknown key \"", Text(key), "\" in ", name, "; known are ",
                                       absl::StrJoin(keys, ", ", [](std::string* out, auto& known) {
                                         out->append(known.first);
                                       })));
      }
      BATON_RETURN_IF_ERROR(it->second(entry.second));
    }
    return absl::OkStatus();
  }

  absl::Status Integer(const YAML::Node& node, const char* key, int64_t least, int64_t* to) const {
    return absl::SimpleAtoi(Text(node), to) && *to >= least
               ? absl::OkStatus()
               : Wrong(node, key, absl::StrCat("a whole number, at least ", least));
  }

  absl::Status Duration(const YAML::Node& node, const char* key,
                        std::chrono::nanoseconds* to) const {
    absl::Duration duration;
    if (!absl::ParseDuration(Text(node), &duration) || duration < absl::ZeroDuration() ||
        duration > absl::Hours(1)) {
      return Wrong(node, key, "a duration such as 250ms or 5s, at most 1h");
    }
    *to = absl::ToChronoNanoseconds(duration);
    return absl::OkStatus();
  }

  static std::string Text(const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : ""; }
  static std::string Normal(const std::string& key) {
    return absl::StrReplaceAll(key, {{"_", "-"}});
  }

  absl::Status Wrong(const YAML::Node& node, absl::string_view key,
                     absl::string_view expected) const {
    return Error(node, absl::StrCat(key, " is \"", Text(node), "\"; expected ", expected));
  }

  absl::Status Error(const YAML::Node& node, absl::string_view what) const {
    // An empty file has no line.
    const int line = std::max(node.Mark().line, 0) + 1;
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", line, ": ", what));
  }

  const std::string& path_;
};

}  // namespace

absl::StatusOr<FaultPlanFile> ReadFaultPlan(const std::string& path) {
  try {
    return Reader(path).Read(YAML::LoadFile(path));
  } catch (const YAML::BadFile&) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
  }
}

void BindFaults(FaultConfig& config, ConfigParser& parser) {
  parser.Group("Tests");
  parser.Add("fault-plan", &config.fault_plan,
             "YAML file of faults to commit on hand-offs; needs --allow-faults");
  parser.Add("allow-faults", &config.allow_faults,
             "this worker may be told to commit faults; never in production");
}

absl::StatusOr<FaultPlanFile> LoadFaults(const FaultConfig& config) {
  if (config.fault_plan.empty()) return FaultPlanFile{};
  if (!config.allow_faults) {
    return absl::FailedPreconditionError(
        absl::StrCat("--fault-plan=", config.fault_plan, " is refused without --allow-faults"));
  }
  absl::StatusOr<FaultPlanFile> plan = ReadFaultPlan(config.fault_plan);
  if (plan.ok()) spdlog::warn("hand-offs are disturbed on purpose: {}", config.fault_plan);
  return plan;
}

}  // namespace baton::kvtransfer
