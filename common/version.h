#pragma once

namespace baton {

// "0.1.0": of the build, as shown by --version and baton_build_info.
const char* Version();

}  // namespace baton
