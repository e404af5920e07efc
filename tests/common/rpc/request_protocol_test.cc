#include "common/rpc/request_protocol.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "baton/v1/decode.pb.h"
#include "gtest/gtest.h"

namespace baton::rpc {
namespace {

// "message: field number ..." of a message and those in it, each once.
void Describe(const google::protobuf::Descriptor& message, std::set<std::string>* lines) {
  std::vector<std::string> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    fields.push_back(absl::StrCat(field.name(), " ", field.number()));
    if (field.message_type() != nullptr) Describe(*field.message_type(), lines);
  }
  lines->insert(absl::StrCat(message.full_name(), ": ", absl::StrJoin(fields, ", ")));
}

// Whoever has to change the text has to raise the number: without it a worker that was built before
// would pass over the new field.
TEST(RequestProtocolTest, ItsFieldsAreThoseOfItsVersion) {
  EXPECT_EQ(kRequestProtocol, 1u);
  std::set<std::string> lines;
  Describe(*v1::DecodeGenerateRequest::descriptor(), &lines);
  EXPECT_EQ(absl::StrJoin(lines, "\n"),
            "baton.v1.AttemptId: request 1, attempt 2\n"
            "baton.v1.DecodeGenerateRequest: attempt 1, prompt_tokens 2, sampling 3, "
            "prefill_workers 4\n"
            "baton.v1.RequestId: high 1, low 2\n"
            "baton.v1.SamplingParams.LogitBiasEntry: key 1, value 2\n"
            "baton.v1.SamplingParams: temperature 1, top_p 2, top_k 3, min_p 4, seed 5, "
            "max_tokens 6, min_tokens 7, stop_token_ids 8, ignore_eos 9, top_logprobs 10, "
            "presence_penalty 11, frequency_penalty 12, repetition_penalty 13, logit_bias 14\n"
            "baton.v1.WorkerRef: address 1, incarnation 2");
}

}  // namespace
}  // namespace baton::rpc
