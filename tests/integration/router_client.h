#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "common/sampling_params.h"
#include "tests/testing/cluster.h"

namespace baton::testing {

// Inference.Generate of the router, with token ids.
inline Outcome AskRouter(Cluster& cluster, const std::vector<int32_t>& prompt,
                         const SamplingParams& sampling) {
  const auto stub = v1::Inference::NewStub(rpc::MakeChannel(
      absl::StrCat("127.0.0.1:", cluster.router().ports().grpc), rpc::ChannelKind::kControl));
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  *request.mutable_sampling() = rpc::SamplingToProto(sampling);
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  const auto reader = stub->Generate(&context, request);
  Outcome outcome;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    outcome.tokens.insert(outcome.tokens.end(), response.token_ids().begin(),
                          response.token_ids().end());
    for (const v1::TokenLogprobs& logprobs : response.logprobs()) {
      outcome.logprobs.push_back(rpc::LogprobsFromProto(logprobs));
    }
    if (response.has_usage()) outcome.usage = response.usage();
    if (response.has_served_by()) outcome.served_by = response.served_by();
  }
  outcome.status = rpc::FromGrpc(reader->Finish());
  return outcome;
}

}  // namespace baton::testing
