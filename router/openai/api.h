#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "router/access/api_keys.h"
#include "router/dispatch/generation_service.h"
#include "router/http/handler.h"
#include "router/metrics.h"

namespace baton::router {

// OpenAI's HTTP API: POST /v1/chat/completions and /v1/completions, GET /v1/models,
// /v1/models/{id}, /health and /version. Thread-safe.
class OpenAiApi final : public HttpHandler {
 public:
  // Pointers must outlive this object and every answer under way.
  // Without `keys` everybody may ask.
  OpenAiApi(RouterMetrics* metrics, const ApiKeys* keys);

  // Until now all but /version was answered 503; now requests find `service`. Once.
  void Begin(GenerationService* service) { service_ = service; }

  // 401 to whoever shows no key, where keys are asked for; 503 before Begin.
  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  HttpResponse Refuse(const HttpRequest& head, int status, const std::string& message) override;

 private:
  void Generate(const HttpRequest& request, std::shared_ptr<HttpReply> reply, Endpoint endpoint);
  HttpResponse Get(const std::string& path, Endpoint* endpoint) const;
  HttpResponse Health() const;

  std::atomic<GenerationService*> service_{nullptr};  // null: /health and /version alone
  RouterMetrics* const metrics_;
  const ApiKeys* const keys_;
  const int64_t started_;  // Unix seconds: "created" of the model
};

}  // namespace baton::router
