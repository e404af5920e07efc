#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/config.h"

namespace baton::router {

struct ServedModel;

// A whole router: HTTP and gRPC front ends, worker registry, dispatch, metrics. Several may live in
// one process. Thread-safe.
class Router {
 public:
  // Binds the ports, loads the model, looks up the names of workers and waits for the first answer
  // of each, both for at most a second as they need not be up, then serves: until then /health and
  // requests are 503, health is NOT_SERVING and calls are UNAVAILABLE. Errors name the file, flag
  // or address at fault; those that need no model come before it is loaded.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterConfig& config);
  // With a model that `load` gives, and as late as it likes.
  using ModelLoader = std::function<absl::StatusOr<ServedModel>()>;
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterConfig& config,
                                                       const ModelLoader& load);
  // Adds what Start would refuse once it looks at files: certificates, keys and the model.
  static void Inspect(const RouterConfig& config, ErrorList& errors);
  // Drain(0).
  ~Router();

  struct Ports {
    int http = 0;
    int grpc = 0;
    int metrics = 0;
  };
  Ports ports() const;
  // "listening http=host:port grpc=host:port metrics=host:port": for scripts, on stdout.
  std::string ListeningLine() const;

  // Reports not healthy and refuses new requests at once, waits up to `timeout` for those that run,
  // cancels the rest, and closes everything. False if some had to be cancelled. Idempotent.
  bool Drain(std::chrono::nanoseconds timeout);

 private:
  struct Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::router
