#include "cli/up/cluster_file.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/config_file.h"
#include "common/status_macros.h"
#include "common/suggestion.h"
#include "yaml-cpp/yaml.h"

namespace baton::cli {
namespace {

// Whether the flag stands in the text by itself, not as the beginning of a longer one.
bool Names(absl::string_view text, absl::string_view flag) {
  for (size_t at = text.find(flag); at != text.npos; at = text.find(flag, at + 1)) {
    const absl::string_view rest = text.substr(at + flag.size());
    if (rest.empty() || !(absl::ascii_isalnum(rest[0]) || rest[0] == '-')) return true;
  }
  return false;
}

struct Reader {
  const std::string& source;
  FlagPlaces& places;

  absl::Status Error(const YAML::Node& node, absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(PlaceInFile(source, node.Mark()), message));
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
  absl::StatusOr<std::string> Flag(const YAML::Node& key, const YAML::Node& value) const {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::string> values, Values(key.Scalar(), value));
    const std::string flag = absl::StrCat("--", absl::StrReplaceAll(key.Scalar(), {{"_", "-"}}));
    places.emplace_back(flag, absl::StrCat(source, ":", key.Mark().line + 1));
    return absl::StrCat(flag, "=", absl::StrJoin(values, ","));
  }

  absl::Status Flags(const std::string& section, const YAML::Node& node, int* count,
                     std::vector<std::string>& flags) const {
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) {
      return Error(node, absl::StrCat(section, " is no map of flags, such as {pages: 512}"));
    }
    for (const auto& entry : node) {
      if (entry.first.Scalar() == "count" && count != nullptr) {
        BATON_RETURN_IF_ERROR(Count(absl::StrCat(section, ".count"), entry.second, 0, count));
        continue;
      }
      BATON_ASSIGN_OR_RETURN(std::string flag, Flag(entry.first, entry.second));
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
      const std::vector<std::string> known = {"model_dir", "ranks",  "devices", "workers",
                                              "prefill",   "decode", "router"};
      const std::string suggestion = Suggestion(name, known);
      return Error(key, absl::StrCat("unknown key ", key.Scalar(),
                                     suggestion.empty()
                                         ? absl::StrCat("; there are ", absl::StrJoin(known, ", "))
                                         : suggestion));
    }
    if (!value.IsScalar()) return Error(value, "model_dir is no path");
    options.model_dir = value.Scalar();
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status ReadClusterFile(const std::string& text, const std::string& source,
                             ClusterOptions& options, FlagPlaces& places) {
  const Reader reader{source, places};
  BATON_ASSIGN_OR_RETURN(const YAML::Node root, ParseConfigText(text, source));
  try {
    if (!root.IsMap()) return reader.Error(root, "no map of keys and values");
    for (const auto& entry : root) {
      BATON_RETURN_IF_ERROR(reader.Section(entry.first, entry.second, options));
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(PlaceInFile(source, error.mark), error.msg));
  }
  return absl::OkStatus();
}

absl::Status WithPlaces(const absl::Status& error, const FlagPlaces& places) {
  std::string message(error.message());
  for (const auto& [flag, place] : places) {
    if (Names(error.message(), flag)) absl::StrAppend(&message, "\n", flag, " is from ", place);
  }
  return error.ok() ? error : absl::Status(error.code(), message);
}

}  // namespace baton::cli
