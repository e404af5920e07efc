#pragma once

// Where `up` serves, and where the other commands ask, unless they are told otherwise.

namespace baton::cli {

inline constexpr char kDefaultUrl[] = "http://127.0.0.1:8000";
inline constexpr char kDefaultListen[] = "127.0.0.1:8000";
inline constexpr char kDefaultGrpcListen[] = "127.0.0.1:8001";
inline constexpr char kDefaultMetricsListen[] = "127.0.0.1:9000";

}  // namespace baton::cli
