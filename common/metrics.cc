#include "common/metrics.h"

#include <chrono>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/metrics_server.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace baton {
namespace {

void CheckName(const std::string& name, bool counter) {
  BATON_CHECK(absl::StartsWith(name, "baton_")) << name;
  BATON_CHECK(absl::EndsWith(name, "_total") || !counter) << "counter " << name;
}

// Collects samples of one scrape into families, one per name.
class FamilyWriter final : public GaugeWriter {
 public:
  explicit FamilyWriter(const std::string& role) : role_(role) {}

  void Set(const std::string& name, const std::string& help, double value,
           const prometheus::Labels& labels) override {
    prometheus::MetricFamily& family = families_[name];
    family.name = name;
    family.help = help;
    family.type = prometheus::MetricType::Gauge;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"role", role_});
    for (const auto& [label, text] : labels) metric.label.push_back({label, text});
    metric.gauge.value = value;
  }

  std::vector<prometheus::MetricFamily> Take() {
    std::vector<prometheus::MetricFamily> families;
    for (auto& [name, family] : families_) families.push_back(std::move(family));
    return families;
  }

 private:
  const std::string& role_;
  std::map<std::string, prometheus::MetricFamily> families_;
};

class Readers {
 public:
  explicit Readers(std::string role) : role_(std::move(role)) {}

  std::vector<prometheus::MetricFamily> Collect() const {
    MutexLock lock(mutex_);
    FamilyWriter writer(role_);
    for (const auto& [id, read] : readers_) read(writer);
    return writer.Take();
  }

  size_t Add(std::function<void(GaugeWriter&)> read) {
    MutexLock lock(mutex_);
    readers_.emplace(next_id_, std::move(read));
    return next_id_++;
  }

  void Remove(size_t id) {
    MutexLock lock(mutex_);
    readers_.erase(id);
  }

 private:
  const std::string role_;
  mutable Mutex mutex_;
  std::map<size_t, std::function<void(GaugeWriter&)>> readers_ ABSL_GUARDED_BY(mutex_);
  size_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& role) : constant_labels{{"role", role}}, readers(role) {}

  std::string Text() const;

  const prometheus::Labels constant_labels;
  prometheus::Registry registry;
  Readers readers;
  std::unique_ptr<MetricsServer> server;  // last: its thread reads what is above
};

Metrics::Metrics(std::string role) : impl_(std::make_unique<Impl>(role)) {
  AddGauge("baton_build_info", "Always 1; the version is a label.", {{"version", Version()}})
      .Set(1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // The name that Prometheus' own client libraries use.
  prometheus::BuildGauge()
      .Name("process_start_time_seconds")
      .Help("Start of the process, in seconds since the Unix epoch.")
      .Labels(impl_->constant_labels)
      .Register(impl_->registry)
      .Add({})
      .Set(std::chrono::duration<double>(now).count());
}

Metrics::~Metrics() = default;

prometheus::Counter& Metrics::AddCounter(const std::string& name, const std::string& help,
                                         const prometheus::Labels& labels) {
  CheckName(name, /*counter=*/true);
  return prometheus::BuildCounter()
      .Name(name)
      .Help(help)
      .Labels(impl_->constant_labels)
      .Register(impl_->registry)
      .Add(labels);
}

prometheus::Gauge& Metrics::AddGauge(const std::string& name, const std::string& help,
                                     const prometheus::Labels& labels) {
  CheckName(name, /*counter=*/false);
  return prometheus::BuildGauge()
      .Name(name)
      .Help(help)
      .Labels(impl_->constant_labels)
      .Register(impl_->registry)
      .Add(labels);
}

prometheus::Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help,
                                             std::span<const double> buckets,
                                             const prometheus::Labels& labels) {
  CheckName(name, /*counter=*/false);
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Labels(impl_->constant_labels)
      .Register(impl_->registry)
      .Add(labels, prometheus::Histogram::BucketBoundaries(buckets.begin(), buckets.end()));
}

Metrics::Reader Metrics::AddReader(std::function<void(GaugeWriter&)> read) {
  return Reader(this, impl_->readers.Add(std::move(read)));
}

void Metrics::RemoveReader(size_t id) { impl_->readers.Remove(id); }

absl::Status Metrics::Serve(const std::string& listen) {
  BATON_CHECK(impl_->server == nullptr) << "Serve is called once";
  BATON_ASSIGN_OR_RETURN(
      impl_->server, MetricsServer::Start(listen, [impl = impl_.get()] { return impl->Text(); }));
  return absl::OkStatus();
}

int Metrics::port() const { return impl_->server == nullptr ? 0 : impl_->server->port(); }

std::string Metrics::Text() const { return impl_->Text(); }

std::string Metrics::Impl::Text() const {
  std::vector<prometheus::MetricFamily> families = registry.Collect();
  for (prometheus::MetricFamily& family : readers.Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace baton
