#pragma once

#include <string_view>

namespace baton {

// "0.1.0": of the build, as shown by --version and baton_build_info.
std::string_view Version();

}  // namespace baton
