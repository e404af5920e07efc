#include "router/registry/fit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton::router {
namespace {

bool ShareTransport(const Worker& one, const Worker& other) {
  return one.transports.empty() || other.transports.empty() ||
         std::ranges::find_first_of(one.transports, other.transports) != one.transports.end();
}

std::string ValueOf(const Semantics& semantics, const std::string& name) {
  const auto found = semantics.find(name);
  return found == semantics.end() ? "not there" : found->second;
}

std::string WhatDiffers(const Worker& one, const Worker& other) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& name) {
    const std::string mine = ValueOf(*one.semantics, name),
                      theirs = ValueOf(*other.semantics, name);
    if (mine == theirs) return;
    differences.push_back(absl::StrCat("the ", name, " of ", one.target, " is ", mine, ", that of ",
                                       other.target, " is ", theirs));
  };
  if (one.semantics != nullptr && other.semantics != nullptr) {
    for (const auto& [name, value] : *one.semantics) compare(name);
    for (const auto& [name, value] : *other.semantics) {
      if (!one.semantics->contains(name)) compare(name);
    }
  }
  if (!differences.empty()) return absl::StrJoin(differences, "; ");
  return absl::StrFormat(
      "the semantics hash of %s is %016x, that of %s is %016x: they were started with different "
      "models, cache formats or numerics",
      one.target, one.semantics_hash, other.target, other.semantics_hash);
}

}  // namespace

bool Fit(const Worker& one, const Worker& other) {
  return one.semantics_hash == other.semantics_hash && ShareTransport(one, other);
}

std::string WhyUnfit(const Worker& one, const Worker& other) {
  if (one.semantics_hash != other.semantics_hash) return WhatDiffers(one, other);
  return absl::StrCat("the transports of ", one.target, " are ",
                      absl::StrJoin(one.transports, ", "), ", those of ", other.target, " are ",
                      absl::StrJoin(other.transports, ", "));
}

}  // namespace baton::router
