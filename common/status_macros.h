#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// BATON_RETURN_IF_ERROR(expr) << "reading " << path;
// BATON_ASSIGN_OR_RETURN(auto value, expr);
// Return early from a function that yields absl::Status or StatusOr; what is streamed is put in
// front of the message ("reading a.bin: no such file"), the code and payloads stay.

namespace baton {

class StatusBuilder {
 public:
  explicit StatusBuilder(absl::Status status) : status_(std::move(status)) {}

  template <typename T>
  StatusBuilder&& operator<<(const T& part) && {
    if constexpr (std::is_same_v<T, std::string_view>) {
      context_.append(part);  // not absl::string_view everywhere
    } else {
      absl::StrAppend(&context_, part);
    }
    return std::move(*this);
  }

  operator absl::Status() && { return Build(); }
  template <typename T>
  operator absl::StatusOr<T>() && {
    return Build();
  }

 private:
  absl::Status Build() {
    if (context_.empty()) return std::move(status_);
    absl::Status annotated(status_.code(), absl::StrCat(context_, ": ", status_.message()));
    status_.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
      annotated.SetPayload(url, payload);
    });
    return annotated;
  }

  absl::Status status_;
  std::string context_;
};

}  // namespace baton

#define BATON_STATUS_CONCAT_INNER(a, b) a##b
#define BATON_STATUS_CONCAT(a, b) BATON_STATUS_CONCAT_INNER(a, b)

#define BATON_RETURN_IF_ERROR(expr)                              \
  if (absl::Status baton_status_ = (expr); baton_status_.ok()) { \
  } else /* NOLINT */                                            \
    return ::baton::StatusBuilder(std::move(baton_status_))

#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_INNER(BATON_STATUS_CONCAT(baton_statusor_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_INNER(statusor, lhs, expr)  \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)
