#pragma once

#include <string>

#include "cli/top/fleet.h"

namespace baton::cli {

// For people: some lines about all requests, then a table of the workers.
std::string FleetText(const FleetFigures& fleet, bool colour);
// For programs: one object on one line; what has no samples is null.
std::string FleetJson(const FleetFigures& fleet);

}  // namespace baton::cli
