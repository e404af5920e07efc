#pragma once

#include <string>

#include "router/registry/snapshot.h"

// Which workers can work together: what must be equal is equal, and both have a transport. What a
// worker does not say of itself is no reason against it.

namespace baton::router {

bool Fit(const Worker& one, const Worker& other);

// What keeps two apart that do not fit: "the transports of a:1 are shm, those of b:2 are grpc".
std::string WhyUnfit(const Worker& one, const Worker& other);

}  // namespace baton::router
