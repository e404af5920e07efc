#include "cli/top/scraper.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/worker_control_client.h"

namespace baton::cli {
namespace {

constexpr std::chrono::seconds kPatience{2};

}  // namespace

Scraper::Scraper(std::vector<std::string> addresses, const rpc::Credentials& credentials)
    : addresses_(std::move(addresses)), credentials_(credentials) {}

absl::StatusOr<Reading> Scraper::Read() {
  Reading reading{.time = std::chrono::steady_clock::now()};
  for (const std::string& address : addresses_) ReadOne(address, reading);
  for (const auto& [worker, found] : Discover(reading)) {
    reading.worker_at[found.metrics] = {.address = worker, .name = found.name};
    if (!reading.by_address.contains(found.metrics)) ReadOne(found.metrics, reading);
    // It may be back elsewhere: asked again next time.
    if (reading.errors.contains(found.metrics)) found_.erase(worker);
  }
  if (!reading.by_address.empty()) return reading;
  return absl::UnavailableError(absl::StrJoin(
      reading.errors, "; ",
      [](std::string* out, const auto& error) { absl::StrAppend(out, error.second); }));
}

void Scraper::ReadOne(const std::string& address, Reading& reading) {
  auto client = clients_.find(address);
  if (client == clients_.end()) {
    absl::StatusOr<Url> url = ParseUrl(address);
    if (!url.ok()) {
      reading.errors[address] = std::string(url.status().message());
      return;
    }
    const HttpOptions options = {.connect_timeout = kPatience, .silence_timeout = kPatience};
    client = clients_.emplace(address, HttpClient(*std::move(url), options)).first;
  }
  const std::string full = absl::StrCat("http://", address, "/metrics");
  const absl::StatusOr<HttpResponse> response = client->second.Get("/metrics");
  absl::Status status = response.ok() ? StatusOf(*response, full) : response.status();
  if (status.ok()) {
    absl::StatusOr<MetricsText> metrics = MetricsText::Parse(response->body);
    if (metrics.ok()) {
      reading.by_address[address] = *std::move(metrics);
      return;
    }
    status = absl::DataLossError(absl::StrCat(full, ": ", metrics.status().message()));
  }
  reading.errors[address] = std::string(status.message());
}

std::map<std::string, Scraper::Found> Scraper::Discover(Reading& reading) {
  std::set<std::string> named;
  for (const auto& [address, metrics] : reading.by_address) {
    for (const auto& [labels, value] : metrics.Samples("baton_worker_health")) {
      const auto worker = labels.find("worker");
      if (worker != labels.end()) named.insert(worker->second);
    }
  }
  std::map<std::string, Found> with_metrics;
  for (const std::string& worker : named) {
    if (!found_.contains(worker)) {
      const auto info = rpc::WorkerControlClient(worker, credentials_).GetInfo(kPatience);
      if (info.ok()) {
        found_[worker] = {.metrics = info->metrics_address(), .name = info->name()};
      } else {
        reading.errors[worker] = std::string(info.status().message());
      }
    }
    const auto found = found_.find(worker);
    if (found != found_.end() && !found->second.metrics.empty()) with_metrics.insert(*found);
  }
  return with_metrics;
}

}  // namespace baton::cli
