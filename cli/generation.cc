#include "cli/generation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/json_dump.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

// A member that may be absent or null.
template <typename Value>
Value Member(const Json& object, const char* name, Value otherwise) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? otherwise : found->get<Value>();
}

void ReadUsage(const Json& usage, Generation& generation) {
  generation.prompt_tokens = Member<int64_t>(usage, "prompt_tokens", 0);
  generation.completion_tokens = Member<int64_t>(usage, "completion_tokens", 0);
  if (const auto details = usage.find("prompt_tokens_details"); details != usage.end()) {
    generation.cached_tokens = Member<int64_t>(*details, "cached_tokens", 0);
  }
}

ServedBy ReadServedBy(const Json& baton) {
  return {.prefill_worker = Member<std::string>(baton, "prefill_worker", ""),
          .decode_worker = Member<std::string>(baton, "decode_worker", ""),
          .prefill_name = Member<std::string>(baton, "prefill_name", ""),
          .decode_name = Member<std::string>(baton, "decode_name", ""),
          .handoff_bytes = Member<int64_t>(baton, "handoff_bytes", 0),
          .attempts = Member<int>(baton, "attempts", 1),
          .ttft_ms = Member<double>(baton, "ttft_ms", 0),
          .prefill_ms = Member<double>(baton, "prefill_ms", 0),
          .handoff_ms = Member<double>(baton, "handoff_ms", 0),
          .decode_queue_ms = Member<double>(baton, "decode_queue_ms", 0)};
}

// StatusOf, and how a key is given where the server wants one.
absl::Status AnswerStatus(const HttpResponse& response, absl::string_view url) {
  const absl::Status status = StatusOf(response, url);
  if (response.status != 401) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; give --api-key-file or BATON_API_KEY"));
}

// Reads the chunks of one stream into a Generation.
class StreamReader {
 public:
  explicit StreamReader(const OnText& on_text) : on_text_(on_text) {}

  // False ends the stream: all is there, an error was found, or the caller has enough.
  bool OnData(absl::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return true;  // the end of the body follows, and the connection can be kept
    }
    try {
      return OnChunk(Json::parse(data));
    } catch (const Json::exception& error) {
      error_ = absl::DataLossError(absl::StrCat("an event is no chunk: ", error.what()));
      return false;
    }
  }

  absl::StatusOr<Generation> Finish() && {
    BATON_RETURN_IF_ERROR(error_);
    if (!done_ && !stopped_) return absl::UnavailableError("the answer broke off");
    return std::move(generation_);
  }

  Generation& generation() { return generation_; }

 private:
  bool OnChunk(const Json& chunk) {
    if (const auto error = chunk.find("error"); error != chunk.end()) {
      error_ = absl::UnavailableError(Member<std::string>(*error, "message", error->dump()));
      return false;
    }
    if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
      ReadUsage(*usage, generation_);
    }
    if (const auto baton = chunk.find("baton"); baton != chunk.end()) {
      generation_.served_by = ReadServedBy(*baton);
    }
    for (const Json& choice : chunk.at("choices")) {
      generation_.finish_reason =
          Member<std::string>(choice, "finish_reason", generation_.finish_reason);
      const Json delta = choice.value("delta", Json::object());
      if (!OnPiece(Member<std::string>(delta, "reasoning_content", ""), true) ||
          !OnPiece(Member<std::string>(delta, "content", ""), false) ||
          !OnPiece(Member<std::string>(choice, "text", ""), false)) {
        stopped_ = true;
        return false;
      }
    }
    return true;
  }

  bool OnPiece(const std::string& text, bool reasoning) {
    if (text.empty()) return true;
    generation_.arrivals.push_back({Generation::Clock::now(), generation_.completion_tokens});
    (reasoning ? generation_.reasoning : generation_.text) += text;
    return !on_text_ || on_text_(text, reasoning);
  }

  const OnText& on_text_;
  Generation generation_;
  absl::Status error_;
  bool done_ = false;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<Generation> StreamGeneration(HttpClient& client, absl::string_view path,
                                            nlohmann::json body, const OnText& on_text) {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const std::string url = absl::StrCat(client.base().ToString(), path);
  StreamReader reader(on_text);
  reader.generation().sent = Generation::Clock::now();
  BATON_ASSIGN_OR_RETURN(const HttpResponse response,
                         client.StreamJson(path, Dump(body), [&](absl::string_view data) {
                           return reader.OnData(data);
                         }));
  reader.generation().ended = Generation::Clock::now();
  BATON_RETURN_IF_ERROR(AnswerStatus(response, url));
  absl::StatusOr<Generation> generation = std::move(reader).Finish();
  BATON_RETURN_IF_ERROR(generation.status()) << url;
  return generation;
}

absl::StatusOr<std::string> ServedModel(HttpClient& client) {
  const std::string url = absl::StrCat(client.base().ToString(), "/v1/models");
  BATON_ASSIGN_OR_RETURN(const HttpResponse response, client.Get("/v1/models"));
  BATON_RETURN_IF_ERROR(AnswerStatus(response, url));
  try {
    return Json::parse(response.body).at("data").at(0).at("id").get<std::string>();
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat(url, ": no list of models: ", error.what()));
  }
}

}  // namespace baton::cli
