#include "router/openai/field_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

std::string Short(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 40;
  return text.size() <= kLongest ? text : TypeOf(value);
}

// Clients choose what keys are called, so errors do not repeat all of them.
std::string ShortKey(const std::string& key) {
  constexpr size_t kLongest = 100;
  return key.size() <= kLongest ? key : absl::StrCat(key.substr(0, kLongest), "...");
}

}  // namespace

std::string TypeOf(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return absl::StrCat("a ", value.type_name());
}

bool IsInteger(const Json& value) {
  if (!value.is_number_float()) return value.is_number();
  const double number = value.get<double>();
  return std::trunc(number) == number;
}

std::optional<int64_t> IntegerWithin(const Json& integer, int64_t low, int64_t high) {
  const auto estimate = integer.get<double>();
  const bool in_64_bits = integer.is_number_float() ? estimate >= -0x1p63 && estimate < 0x1p63
                                                    : !integer.is_number_unsigned() ||
                                                          integer.get<uint64_t>() <= INT64_MAX;
  if (!in_64_bits) return std::nullopt;
  const auto number = integer.get<int64_t>();
  return number < low || number > high ? std::nullopt : std::optional(number);
}

const Json* FieldReader::Find(const std::string& key) {
  known_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::PathTo(const std::string& key) const {
  return absl::StrCat(path_, path_.empty() ? "" : ".", ShortKey(key));
}

void FieldReader::Fail(const std::string& key, const std::string& message,
                       const std::string& code) {
  if (error_) return;
  const std::string path = key.empty() ? path_ : PathTo(key);
  error_ = InvalidField(path, absl::StrCat(path, " ", message), code);
}

void FieldReader::FailMissing(const std::string& key) {
  Fail(key, "is missing", "missing_required_parameter");
}

void FieldReader::FailType(const std::string& key, const Json& value, const std::string& expected) {
  Fail(key, absl::StrCat("is ", Short(value), ", expected ", expected), "invalid_type");
}

void FieldReader::Float(const std::string& key, double low, double high,
                        std::optional<float>* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_number()) {
    FailType(key, *field, "a number");
    return;
  }
  const double number = field->get<double>();
  if (!(number >= low && number <= high)) {
    Fail(key, absl::StrCat("is ", Short(*field), ", expected ", low, " to ", high),
         number < low ? "decimal_below_min_value" : "decimal_above_max_value");
    return;
  }
  *value = static_cast<float>(number);
}

bool FieldReader::ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* value) {
  const Json* field = Find(key);
  if (field == nullptr) return false;
  const std::string expected = absl::StrCat("an integer from ", low, " to ", high);
  if (!IsInteger(*field)) {
    FailType(key, *field, expected);
    return false;
  }
  const std::optional<int64_t> number = IntegerWithin(*field, low, high);
  if (!number) {
    const bool below = field->get<double>() < static_cast<double>(low);
    Fail(key, absl::StrCat("is ", Short(*field), ", expected ", expected),
         below ? "integer_below_min_value" : "integer_above_max_value");
    return false;
  }
  *value = *number;
  return true;
}

void FieldReader::Boolean(const std::string& key, bool* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_boolean()) {
    FailType(key, *field, "true or false");
    return;
  }
  *value = field->get<bool>();
}

void FieldReader::String(const std::string& key, std::string* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_string()) {
    FailType(key, *field, "a string");
    return;
  }
  *value = field->get<std::string>();
}

void FieldReader::Ignore(std::initializer_list<std::string> keys) {
  for (const std::string& key : keys) known_.emplace(key);
}

void FieldReader::Unsupported(const std::string& key, const Json& neutral) {
  const Json* field = Find(key);
  if (field == nullptr || *field == neutral) return;
  Fail(key,
       neutral.is_null()
           ? "is not supported"
           : absl::StrCat("is ", Short(*field), ", only ", Short(neutral), " is supported"),
       "unsupported_parameter");
}

void FieldReader::RejectUnknown() {
  for (const auto& [key, value] : object_.items()) {
    if (!known_.contains(key)) Fail(key, "is not a known field", "unknown_parameter");
  }
}

}  // namespace baton::router
