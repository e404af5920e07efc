#include "cli/top/fleet_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/json_dump.h"
#include "cli/terminal.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Time(double seconds) {
  return std::isfinite(seconds) ? HumanDuration(std::chrono::duration<double>(seconds)) : "-";
}

Json Milliseconds(double seconds) { return std::isfinite(seconds) ? Json(seconds * 1e3) : Json(); }

// By its name, with the address where others share it.
std::string Called(const WorkerFigures& worker, const FleetFigures& fleet) {
  const std::string address = HarmlessName(worker.address);
  if (worker.name.empty()) return address;
  const bool shared = std::ranges::count(fleet.workers, worker.name, &WorkerFigures::name) > 1;
  return absl::StrCat(HarmlessName(worker.name), shared ? absl::StrCat(" ", address) : "");
}

// What it is, for programs.
Json Identity(const WorkerFigures& worker) {
  Json json = {{"address", worker.address}};
  if (!worker.name.empty()) json["name"] = worker.name;
  return json;
}

Json LatencyJson(const Latency& latency) {
  return {{"p50_ms", Milliseconds(latency.p50)},
          {"p95_ms", Milliseconds(latency.p95)},
          {"p99_ms", Milliseconds(latency.p99)},
          {"samples", latency.count}};
}

}  // namespace

std::string FleetText(const FleetFigures& fleet, bool colour) {
  const RouterFigures& router = fleet.router;
  std::string text = absl::StrFormat("requests  %.0f running, %.1f/s, %.0f so far, ",
                                     router.running, router.requests_per_s, router.requests);
  absl::StrAppend(
      &text,
      Styled(absl::StrFormat("%.0f failed", router.failures),
             router.failures > 0 ? Style::kRed : Style::kPlain, colour),
      absl::StrFormat(" (%.1f/s), %.1f retries/s\n", router.failures_per_s, router.retries_per_s));
  absl::StrAppendFormat(&text, "tokens    %.0f/s prompt, %.0f/s generated\n\n",
                        router.prompt_tokens_per_s, router.generation_tokens_per_s);

  Table latencies({"latency", "p50", "p95", "p99", "samples"});
  const auto add = [&](const char* name, const Latency& latency) {
    latencies.AddRow({name, Time(latency.p50), Time(latency.p95), Time(latency.p99),
                      absl::StrFormat("%.0f", latency.count)});
  };
  add("time to first token", router.ttft);
  add("between tokens", router.itl);
  absl::StrAppend(&text, latencies.ToString(colour), "\n");

  Table workers({"role", "worker", "running", "waiting", "tokens/s", "pages used", "kept", "of",
                 "hand-off/s", "failed"});
  std::string problems;
  for (const WorkerFigures& worker : fleet.workers) {
    if (!worker.error.empty()) {
      absl::StrAppend(&problems, Styled(Harmless(worker.error), Style::kRed, colour), "\n");
      continue;
    }
    const auto whole = [](double value) { return absl::StrFormat("%.0f", value); };
    workers.AddRow({worker.role, Called(worker, fleet), whole(worker.running),
                    whole(worker.waiting), whole(worker.tokens_per_s), whole(worker.pages_used),
                    whole(worker.pages_prefix), whole(worker.pages_total),
                    HumanBytes(worker.handoff_bytes_per_s), whole(worker.failures)});
  }
  return absl::StrCat(text, workers.ToString(colour), problems);
}

std::string FleetJson(const FleetFigures& fleet) {
  const RouterFigures& router = fleet.router;
  Json workers = Json::array();
  for (const WorkerFigures& worker : fleet.workers) {
    Json& entry = workers.emplace_back(Identity(worker));
    if (!worker.error.empty()) {
      entry["error"] = worker.error;
      continue;
    }
    entry.update({{"metrics_address", worker.metrics_address},
                  {"role", worker.role},
                  {"running", worker.running},
                  {"waiting", worker.waiting},
                  {"tokens_per_s", worker.tokens_per_s},
                  {"pages_used", worker.pages_used},
                  {"pages_prefix", worker.pages_prefix},
                  {"pages_total", worker.pages_total},
                  {"handoff_bytes_per_s", worker.handoff_bytes_per_s},
                  {"failures", worker.failures}});
  }
  const Json json = {{"requests", router.requests},
                     {"failures", router.failures},
                     {"running", router.running},
                     {"requests_per_s", router.requests_per_s},
                     {"failures_per_s", router.failures_per_s},
                     {"retries_per_s", router.retries_per_s},
                     {"prompt_tokens_per_s", router.prompt_tokens_per_s},
                     {"generation_tokens_per_s", router.generation_tokens_per_s},
                     {"ttft", LatencyJson(router.ttft)},
                     {"itl", LatencyJson(router.itl)},
                     {"workers", std::move(workers)}};
  return Dump(json);
}

}  // namespace baton::cli
