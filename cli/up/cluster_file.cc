#include "cli/up/cluster_file.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "yaml-cpp/yaml.h"

namespace baton::cli {
namespace {

constexpr int kMaxWorkers = 1024;

struct Reader {
  absl::string_view source;

  absl::Status Error(const YAML::Node& node, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ":", node.Mark().line + 1, ": ", message));
  }

  absl::Status Count(const std::string& what, const YAML::Node& node, int low, int* count) const {
    if (node.IsScalar() && absl::SimpleAtoi(node.Scalar(), count) && *count >= low &&
        *count <= kMaxWorkers) {
      return absl::OkStatus();
    }
    return Error(node,
                 absl::StrCat(what, " is not a whole number from ", low, " to ", kMaxWorkers));
  }

  absl::StatusOr<std::vector<std::string>> Values(const std::string& key,
                                                  const YAML::Node& value) const {
    if (value.IsScalar()) return std::vector<std::string>{value.Scalar()};
    if (!value.IsSequence()) return Error(value, absl::StrCat(key, " is no value and no list"));
    std::vector<std::string> items;
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return Error(item, absl::StrCat(key, " holds more than values"));
      items.push_back(item.Scalar());
    }
    return items;
  }

  // "--name=value"; a list becomes one value with commas, as these programs take lists.
  absl::StatusOr<std::string> Flag(const std::string& key, const YAML::Node& value) const {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::string> values, Values(key, value));
    return absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}), "=",
                        absl::StrJoin(values, ","));
  }

  absl::Status Flags(const std::string& section, const YAML::Node& node, int* count,
                     std::vector<std::string>& flags) const {
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) {
      return Error(node, absl::StrCat(section, " is no map of flags, such as {pages: 512}"));
    }
    for (const auto& entry : node) {
      const std::string key = entry.first.Scalar();
      if (key == "count" && count != nullptr) {
        BATON_RETURN_IF_ERROR(Count(absl::StrCat(section, ".count"), entry.second, 0, count));
        continue;
      }
      BATON_ASSIGN_OR_RETURN(std::string flag, Flag(key, entry.second));
      flags.push_back(std::move(flag));
    }
    return absl::OkStatus();
  }

  absl::Status Section(const YAML::Node& key, const YAML::Node& value,
                       ClusterOptions& options) const {
    const std::string name = absl::StrReplaceAll(key.Scalar(), {{"-", "_"}});
    if (name == "workers") return Flags(name, value, nullptr, options.worker_flags);
    if (name == "prefill") return Flags(name, value, &options.prefill, options.prefill_flags);
    if (name == "decode") return Flags(name, value, &options.decode, options.decode_flags);
    if (name == "router") return Flags(name, value, nullptr, options.router_flags);
    if (name == "ranks") return Count(name, value, 1, &options.ranks);
    if (name == "devices") {
      BATON_ASSIGN_OR_RETURN(options.devices, Values(name, value));
      return absl::OkStatus();
    }
    if (name != "model_dir") {
      return Error(key, absl::StrCat("unknown key '", key.Scalar(),
                                     "': model_dir, ranks, devices, workers, prefill, decode and "
                                     "router are known"));
    }
    if (!value.IsScalar()) return Error(value, "model_dir is no path");
    options.model_dir = value.Scalar();
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status ReadClusterFile(absl::string_view text, absl::string_view source,
                             ClusterOptions& options) {
  const Reader reader{source};
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap()) return reader.Error(root, "no map of keys and values");
    for (const auto& entry : root) {
      BATON_RETURN_IF_ERROR(reader.Section(entry.first, entry.second, options));
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ":", error.mark.line + 1, ": ", error.msg));
  }
  return absl::OkStatus();
}

}  // namespace baton::cli
