#include "router/openai/api.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/version.h"
#include "nlohmann/json.hpp"
#include "router/dispatch/client_request_id.h"
#include "router/field_at_fault.h"
#include "router/openai/answer.h"
#include "router/openai/error.h"
#include "router/openai/request.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kApiPrefix = "/v1/";  // what stands behind keys, where there are any
constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kHealthPath = "/health";
constexpr std::string_view kVersionPath = "/version";

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpResponse JsonResponse(int status, const Json& body) {
  return {.status = status,
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

Outcome OutcomeOfHttp(int status) {
  if (status < 400) return Outcome::kOk;
  if (status == 429) return Outcome::kOverload;
  if (status == 503) return Outcome::kUnavailable;
  return status < 500 ? Outcome::kInvalid : Outcome::kInternal;
}

// "application/json", parameters and case aside.
bool IsJson(absl::string_view content_type) {
  const absl::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(type), "application/json");
}

// Undoes percent-encoding; what is malformed stays as it is.
std::string PercentDecoded(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const bool encoded = text[i] == '%' && text.size() - i > 2 &&
                         std::from_chars(&text[i + 1], &text[i + 3], byte, 16).ptr == &text[i + 3];
    decoded.push_back(encoded ? static_cast<char>(byte) : text[i]);
    if (encoded) i += 2;
  }
  return decoded;
}

std::optional<Endpoint> GeneratingEndpoint(const std::string& path) {
  if (path == "/v1/chat/completions") return Endpoint::kChatCompletions;
  if (path == "/v1/completions") return Endpoint::kCompletions;
  return std::nullopt;
}

bool IsGetPath(const std::string& path) {
  return path == kHealthPath || path == kVersionPath || path == kModelsPath ||
         (absl::StartsWith(path, "/v1/models/") && path.size() > kModelsPath.size() + 1);
}

// By which the client, and who stands between, can tell which answer this is: the client's own id,
// or else the router's.
std::string AnswerId(const HttpRequest& request, const RequestId& own = RequestId::Random()) {
  const std::string given = ClientRequestId(request.request_id);
  return given.empty() ? own.ToString() : given;
}

void Name(HttpResponse& response, const std::string& id) {
  response.headers.emplace_back("x-request-id", id);
}

const char* IdPrefix(Endpoint endpoint) {
  return endpoint == Endpoint::kChatCompletions ? "chatcmpl-" : "cmpl-";
}

}  // namespace

OpenAiApi::OpenAiApi(RouterMetrics* metrics, const ApiKeys* keys)
    : metrics_(metrics), keys_(keys), started_(UnixSeconds()) {}

HttpResponse OpenAiApi::Refuse(const HttpRequest& head, int status, const std::string& message) {
  // A 503 of the server says that it has too many connections, or too much in them.
  metrics_->CountRequest(Endpoint::kOther,
                         status == 503 ? Outcome::kOverload : OutcomeOfHttp(status));
  HttpResponse response = ErrorResponse({.http_status = status,
                                         .message = message,
                                         .code = status == 503 ? "service_unavailable" : "",
                                         .retry_after = status == 503});
  Name(response, AnswerId(head));
  return response;
}

std::optional<HttpResponse> OpenAiApi::RefuseHead(const HttpRequest& head) {
  HttpResponse response;
  const bool open = keys_ == nullptr || !absl::StartsWith(head.path, kApiPrefix);
  if (!open && !keys_->Accepts(head.authorization)) {
    response = ErrorResponse({.http_status = 401,
                              .message = "the Authorization header holds no valid key",
                              .code = "invalid_api_key"});
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  } else if (service_ == nullptr && head.path != kHealthPath && head.path != kVersionPath) {
    response = ErrorResponse(ErrorOf(StillStarting()));
  } else {
    return std::nullopt;
  }
  Name(response, AnswerId(head));
  metrics_->CountRequest(GeneratingEndpoint(head.path).value_or(Endpoint::kOther),
                         OutcomeOfHttp(response.status));
  return response;
}

void OpenAiApi::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const std::optional<Endpoint> generating = GeneratingEndpoint(request.path);
  if (generating && request.method == "POST") {
    Generate(request, std::move(reply), *generating);
    return;
  }
  Endpoint endpoint = generating.value_or(Endpoint::kOther);
  HttpResponse response;
  const bool is_get_path = IsGetPath(request.path);
  if (is_get_path && request.method == "GET") {
    response = Get(request.path, &endpoint);
  } else if (generating || is_get_path) {
    const char* allowed = generating ? "POST" : "GET";
    response = ErrorResponse({.http_status = 405,
                              .message = absl::StrCat(request.method, " is not allowed on ",
                                                      request.path, ", only ", allowed, " is")});
    response.headers.emplace_back("Allow", allowed);
  } else {
    response = ErrorResponse({.http_status = 404,
                              .message = absl::StrCat("there is nothing at ", request.path),
                              .code = "not_found"});
  }
  metrics_->CountRequest(endpoint, OutcomeOfHttp(response.status));
  Name(response, AnswerId(request));
  reply->Respond(std::move(response));
}

void OpenAiApi::Generate(const HttpRequest& request, std::shared_ptr<HttpReply> reply,
                         Endpoint endpoint) {
  const RequestId request_id = RequestId::Random();
  const std::string header_id = AnswerId(request, request_id);
  const auto respond = [&](const ApiError& error) {
    HttpResponse response = ErrorResponse(error);
    Name(response, header_id);
    reply->Respond(std::move(response));
  };
  const auto refuse = [&](const ApiError& error) {
    metrics_->CountRequest(endpoint, OutcomeOfHttp(error.http_status));
    respond(error);
  };
  if (!IsJson(request.content_type)) {
    refuse({.http_status = 415,
            .message = absl::StrCat("Content-Type is '", request.content_type,
                                    "', expected application/json")});
    return;
  }
  auto parsed = endpoint == Endpoint::kChatCompletions ? ParseChatCompletion(request.body)
                                                       : ParseCompletion(request.body);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
    refuse(*error);
    return;
  }
  CompletionRequest& completion = std::get<CompletionRequest>(parsed);
  completion.generation.id = request_id;
  completion.generation.client_id = ClientRequestId(request.request_id);
  GenerationService& service = *service_;
  const ServedModel& model = service.model();
  const auto answer = std::make_shared<HttpAnswer>(
      reply,
      ResponseHeader{.endpoint = endpoint,
                     .id = absl::StrCat(IdPrefix(endpoint), request_id.ToString()),
                     .created = UnixSeconds(),
                     .model = model.name,
                     .include_usage = completion.include_usage,
                     .continuous_usage = completion.continuous_usage_stats,
                     .field_names = completion.field_names,
                     .logprobs_tokenizer =
                         completion.generation.sampling.top_logprobs ? &model.tokenizer : nullptr},
      header_id, completion.generation.stream, completion.choices);
  const absl::StatusOr<std::vector<std::shared_ptr<Generation>>> generations =
      service.Prepare(std::move(completion.generation), answer->Sinks());
  if (!generations.ok()) {
    respond(ErrorOf(generations.status(), completion.field_names));
    return;
  }
  answer->Start(*generations);
  reply->OnDisconnect([answer] { answer->Cancel(absl::CancelledError("the client is gone")); });
}

HttpResponse OpenAiApi::Get(const std::string& path, Endpoint* endpoint) const {
  if (path == kHealthPath) {
    *endpoint = Endpoint::kHealth;
    return Health();
  }
  if (path == kVersionPath) return JsonResponse(200, {{"version", Version()}});

  *endpoint = Endpoint::kModels;
  const GenerationService& service = *service_;
  const ServedModel& model = service.model();
  Json card = {
      {"id", model.name}, {"object", "model"}, {"created", started_}, {"owned_by", "baton"}};
  const uint32_t longest = LongestContext(*service.workers());
  if (longest > 0) card["max_model_len"] = longest;
  if (path == kModelsPath) {
    return JsonResponse(200, {{"object", "list"}, {"data", Json::array({card})}});
  }
  const std::string id = PercentDecoded(path.substr(kModelsPath.size() + 1));
  if (id == model.name) return JsonResponse(200, card);
  return ErrorResponse(ErrorOf(
      AtFault("model", absl::NotFoundError(absl::StrCat("the model '", id, "' does not exist")))));
}

// 200 only if a request that came now would find workers.
HttpResponse OpenAiApi::Health() const {
  const GenerationService* service = service_;
  if (service == nullptr) {
    return JsonResponse(503, {{"status", "starting"}, {"workers", Json::array()}});
  }
  const std::shared_ptr<const Snapshot> snapshot = service->workers();
  Json workers = Json::array();
  for (const Worker& worker : snapshot->workers) {
    Json entry = {{"address", worker.target},
                  {"role", WorkerRoleName(worker.role)},
                  {"ready", worker.Usable()},
                  {"incarnation", absl::StrFormat("%016x", worker.id.incarnation)},
                  {"requests", worker.EstimatedRequests()}};
    if (!worker.name.empty()) entry["name"] = worker.name;
    if (worker.id.address != worker.target) entry["advertises"] = worker.id.address;
    if (!worker.ready) entry["reason"] = worker.not_ready_reason;
    if (!worker.mismatch.empty()) entry["reason"] = worker.mismatch;
    workers.push_back(std::move(entry));
  }
  const bool draining = service->closed();
  const std::string missing = WhyNoRoute(*snapshot);
  Json health = {{"status", draining ? "draining" : missing.empty() ? "ok" : "unavailable"}};
  if (!missing.empty()) health["reason"] = missing;
  health["workers"] = std::move(workers);
  return JsonResponse(draining || !missing.empty() ? 503 : 200, health);
}

}  // namespace baton::router
