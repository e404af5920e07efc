#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "router/openai/error.h"

namespace baton::router {

using Json = nlohmann::ordered_json;

// Reads the fields of one JSON object. The first thing that is wrong is kept as the error, and
// reading goes on, so that a caller reads everything and then asks once. Null counts as absent, as
// clients send it for "default".
class FieldReader {
 public:
  // `path` stands before field names in errors: "messages[0]"; empty at the top. `object` must
  // outlive the reader.
  FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // Null when absent. Every field that is read by one of these counts as known.
  const Json* Find(const std::string& key);

  // Absent fields leave the value as it is.
  void Float(const std::string& key, double low, double high, std::optional<float>* value);
  template <typename Int>
  void Integer(const std::string& key, int64_t low, int64_t high, std::optional<Int>* value) {
    int64_t number;
    if (ReadInteger(key, low, high, &number)) *value = static_cast<Int>(number);
  }
  void Boolean(const std::string& key, bool* value);
  void String(const std::string& key, std::string* value);

  // Fields that are accepted and change nothing.
  void Ignore(std::initializer_list<std::string> keys);
  // Fields that exist in the API but not here: anything but `neutral` is an error.
  void Unsupported(const std::string& key, const Json& neutral = nullptr);
  // An error for the first field that nobody asked for.
  void RejectUnknown();

  // `code` is one of OpenAI's.
  void Fail(const std::string& key, const std::string& message,
            const std::string& code = "invalid_value");
  void FailMissing(const std::string& key);
  void FailType(const std::string& key, const Json& value, const std::string& expected);
  // "messages[0].role"; the beginning of a key that is long.
  std::string PathTo(const std::string& key) const;

  const std::optional<ApiError>& error() const { return error_; }
  // Takes over the error of a part that was read by another reader.
  void Adopt(const std::optional<ApiError>& error) {
    if (!error_) error_ = error;
  }

 private:
  bool ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* value);

  const Json& object_;
  const std::string path_;
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

// "a string", "an array" ...: for "is ..., expected ...".
std::string TypeOf(const Json& value);

// A number without a fraction, however it is written: 2, 2.0, 2e0.
bool IsInteger(const Json& value);
// An integer's value; nullopt if it lies outside.
std::optional<int64_t> IntegerWithin(const Json& integer, int64_t low, int64_t high);

}  // namespace baton::router
