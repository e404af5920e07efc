#include "engine/model/json.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

using Json = nlohmann::json;

// Watches the parser's events. Returning false from the callback only drops values, so the first
// complaint is kept and the caller rejects the document.
class StrictnessCheck {
 public:
  explicit StrictnessCheck(int max_depth) : max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (!problem_.empty()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
        if (depth >= max_depth_) Complain(absl::StrCat("nested deeper than ", max_depth_));
        names_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        names_.pop_back();
        break;
      case Json::parse_event_t::array_start:
        if (depth >= max_depth_) Complain(absl::StrCat("nested deeper than ", max_depth_));
        break;
      case Json::parse_event_t::key: {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!names_.back().insert(name).second) {
          Complain(absl::StrCat("name \"", name.substr(0, 200), "\" occurs twice"));
        }
        break;
      }
      default:
        break;
    }
    return problem_.empty();
  }

  const std::string& problem() const { return problem_; }

 private:
  void Complain(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  int max_depth_;
  std::vector<std::set<std::string>> names_;  // of the objects that are open
  std::string problem_;
};

}  // namespace

absl::StatusOr<Json> ParseUntrustedJson(absl::string_view text, int max_depth) {
  if (text.find('\0') != absl::string_view::npos) {  // for the library it would be the end
    return absl::InvalidArgumentError("not valid JSON: it has a zero byte");
  }
  StrictnessCheck check(max_depth);
  Json document;
  try {
    document = Json::parse(text.begin(), text.end(), std::ref(check));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", error.what()));
  }
  if (!check.problem().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("refused JSON: ", check.problem()));
  }
  return document;
}

}  // namespace baton::engine
