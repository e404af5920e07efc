#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/http/body_budget.h"

// What the HTTP server and the API on top of it agree on; free of the HTTP library.

namespace baton::router {

struct HttpRequest {
  std::string method;             // upper case; GET for a HEAD, whose answer loses its body later
  std::string path;               // percent-encoding as received, without the query
  std::string content_type = {};  // empty: no such header
  std::string authorization = {};
  std::string request_id = {};  // X-Request-Id
  std::string body = {};
  BodyBudget::Share body_share = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

// The answer to one request: either Respond once, or StartStream, any number of Writes, and Finish.
// Thread-safe; nothing blocks, what the client does not take yet is queued, up to a limit: a client
// that lets more of a stream wait counts as gone. After it has gone everything is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void Respond(HttpResponse response) = 0;
  virtual void StartStream(HttpResponse head) = 0;  // its body is ignored
  virtual void Write(std::string bytes) = 0;
  virtual void Finish() = 0;

  // `on_disconnect` runs at most once, as soon as the client is gone before the answer is complete;
  // at once if it is gone already. Dropped when the answer is complete.
  virtual void OnDisconnect(std::function<void()> on_disconnect) = 0;

  // Runs `work` on a thread of the server's pool, never before this returns: for what must not be
  // done in a callback that holds a lock.
  virtual void Post(std::function<void()> work) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // The answer to a request that is refused by its head (`head` has no body yet), before the client
  // is asked for the body and before memory is held for it; nullopt: it is read, and Handle
  // follows. Called on a thread that serves connections: must not take long.
  virtual std::optional<HttpResponse> RefuseHead(const HttpRequest&) { return std::nullopt; }

  // Called on a thread of the server's pool; may take CPU time, must not wait. The reply must be
  // completed sooner or later, on any thread.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;

  // The answer to a request that the server refused itself (too large, too slow, malformed, too
  // many connections). `head` is as much of it as could be read.
  virtual HttpResponse Refuse(const HttpRequest& head, int status, const std::string& message) = 0;
};

}  // namespace baton::router
