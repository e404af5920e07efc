#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "router/dispatch/generation_request.h"

namespace baton::router {

// What a gRPC client asks for, but for its ids. InvalidArgument names the field that is wrong, and
// a field that is not known here by its number: it was meant to change the answer.
absl::StatusOr<GenerationRequest> RequestFromProto(const v1::GenerateRequest& proto);

// Bytes that a message takes, about: of many small parts many times what they are on the wire.
int64_t MemoryOf(const v1::GenerateRequest& proto);

}  // namespace baton::router
