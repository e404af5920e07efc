#include "router/openai/field_reader.h"

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

std::string Short(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 40;
  return text.size() <= kLongest ? text : TypeOf(value);
}

}  // namespace

std::string TypeOf(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return absl::StrCat("a ", value.type_name());
}

const Json* FieldReader::Find(const std::string& key) {
  known_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::PathTo(const std::string& key) const {
  return path_.empty() ? key : absl::StrCat(path_, ".", key);
}

void FieldReader::Fail(const std::string& key, const std::string& message) {
  if (error_) return;
  const std::string path = key.empty() ? path_ : PathTo(key);
  error_ = InvalidField(path, absl::StrCat(path, " ", message));
}

void FieldReader::Float(const std::string& key, double low, double high,
                        std::optional<float>* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_number()) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected a number"));
    return;
  }
  const double number = field->get<double>();
  if (!(number >= low && number <= high)) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected ", low, " to ", high));
    return;
  }
  *value = static_cast<float>(number);
}

bool FieldReader::ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* value) {
  const Json* field = Find(key);
  if (field == nullptr) return false;
  const bool fits = field->is_number_integer() &&
                    !(field->is_number_unsigned() && field->get<uint64_t>() > INT64_MAX);
  if (!fits || field->get<int64_t>() < low || field->get<int64_t>() > high) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected an integer from ", low, " to ", high));
    return false;
  }
  *value = field->get<int64_t>();
  return true;
}

void FieldReader::Boolean(const std::string& key, bool* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_boolean()) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected true or false"));
    return;
  }
  *value = field->get<bool>();
}

void FieldReader::String(const std::string& key, std::string* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_string()) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected a string"));
    return;
  }
  *value = field->get<std::string>();
}

void FieldReader::Ignore(std::initializer_list<std::string> keys) {
  for (const std::string& key : keys) known_.emplace(key);
}

void FieldReader::Unsupported(const std::string& key, const Json& neutral) {
  const Json* field = Find(key);
  if (field == nullptr || *field == neutral || error_) return;
  Fail(key, neutral.is_null()
                ? "is not supported"
                : absl::StrCat("is ", Short(*field), ", only ", Short(neutral), " is supported"));
  error_->code = "unsupported_parameter";
}

void FieldReader::RejectUnknown() {
  for (const auto& [key, value] : object_.items()) {
    if (error_ || known_.contains(key)) continue;
    Fail(key, "is not a known field");
    error_->code = "unknown_parameter";
  }
}

}  // namespace baton::router
