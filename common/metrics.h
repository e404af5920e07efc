#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"

// Prometheus metrics of one process. Names start with baton_, carry their base unit (_seconds,
// _bytes) and, for counters, end in _total. Label values come from closed sets: never a request id,
// a user, a path or the address of whoever connects. Every series has the constant label `role`.

namespace baton {

// Upper bounds of histogram buckets, in seconds unless the name says otherwise.
inline constexpr double kTtftBuckets[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1,
                                          0.15,  0.2,   0.35,  0.5,  0.75, 1,     1.5,  2,     3,
                                          5,     10,    20,    40,   80,   160,   320};
inline constexpr double kInterTokenBuckets[] = {
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
    0.04,   0.05,  0.075,  0.1,   0.15,  0.2,   0.3,   0.5,    1,    2,     5,    10};
inline constexpr double kHandoffBuckets[] = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005,
                                             0.0075, 0.01,   0.02,   0.05,  0.1,   0.2,   0.5,
                                             1,      2,      5,      10,    30};
// For anything between a queue that is empty and a request that runs for minutes.
inline constexpr double kDurationBuckets[] = {0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
                                              0.05,   0.1,    0.2,   0.5,   1,     2,    5,
                                              10,     20,     60,    120,   300,   600};
inline constexpr double kCountBuckets[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

// One metric per value of a closed label. The enum's values count from 0, and LabelValues(Enum{}),
// found by argument-dependent lookup, yields an std::array of their texts in that order:
//   auto requests = metrics.AddCounters<Outcome>("baton_requests_total", "Requests.", "outcome");
//   requests[Outcome::kOk].Increment();
template <typename Metric, typename Enum>
class ByLabel {
 public:
  static constexpr size_t kSize = LabelValues(Enum{}).size();
  explicit ByLabel(const std::array<Metric*, kSize>& metrics) : metrics_(metrics) {}
  Metric& operator[](Enum value) const { return *metrics_[static_cast<size_t>(value)]; }

 private:
  std::array<Metric*, kSize> metrics_;
};

// Where a reader of Metrics::AddReader puts what it reads.
class GaugeWriter {
 public:
  virtual void Set(const std::string& name, const std::string& help, double value,
                   const prometheus::Labels& labels) = 0;
  void Set(const std::string& name, const std::string& help, double value) {
    Set(name, help, value, {});
  }

 protected:
  ~GaugeWriter() = default;
};

// Owns every metric of the process and, after Serve, the HTTP endpoint. Thread-safe.
class Metrics {
 public:
  // `role` is router, prefill or decode. Adds baton_build_info{version} and
  // process_start_time_seconds.
  explicit Metrics(std::string role);
  ~Metrics();

  // References live as long as this object. The same name and labels yield the same metric; a
  // name outside the conventions above, or used for two types, is a broken invariant.
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const prometheus::Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help,
                              const prometheus::Labels& labels = {});
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      std::span<const double> buckets,
                                      const prometheus::Labels& labels = {});

  template <typename Enum>
  ByLabel<prometheus::Counter, Enum> AddCounters(const std::string& name, const std::string& help,
                                                 const std::string& label) {
    return ForEach<prometheus::Counter, Enum>([&](const char* value) -> prometheus::Counter& {
      return AddCounter(name, help, {{label, value}});
    });
  }
  template <typename Enum>
  ByLabel<prometheus::Histogram, Enum> AddHistograms(const std::string& name,
                                                     const std::string& help,
                                                     std::span<const double> buckets,
                                                     const std::string& label) {
    return ForEach<prometheus::Histogram, Enum>([&](const char* value) -> prometheus::Histogram& {
      return AddHistogram(name, help, buckets, {{label, value}});
    });
  }

  // Ends the reader when destroyed, waiting for a scrape that is inside it. Move-only. Must not
  // outlive the Metrics.
  class Reader {
   public:
    Reader() = default;
    Reader(Metrics* metrics, size_t id) : metrics_(metrics), id_(id) {}
    Reader(Reader&& other) noexcept
        : metrics_(std::exchange(other.metrics_, nullptr)), id_(other.id_) {}
    Reader& operator=(Reader&& other) noexcept {
      std::swap(metrics_, other.metrics_);
      std::swap(id_, other.id_);
      return *this;
    }
    ~Reader() {
      if (metrics_ != nullptr) metrics_->RemoveReader(id_);
    }

   private:
    Metrics* metrics_ = nullptr;
    size_t id_ = 0;
  };

  // Gauges that are read at every scrape instead of being kept up to date: `read` runs on the
  // thread that scrapes, one scrape at a time, must be quick and must not add or end readers.
  [[nodiscard]] Reader AddReader(std::function<void(GaugeWriter&)> read);

  // Serves GET /metrics on host:port; port 0 picks one. UNAVAILABLE when it cannot be bound. Once.
  absl::Status Serve(const std::string& listen);
  // The bound port; 0 before Serve.
  int port() const;

  // What a scrape would show, in the text exposition format.
  std::string Text() const;

 private:
  template <typename Metric, typename Enum, typename Add>
  ByLabel<Metric, Enum> ForEach(Add add) {
    std::array<Metric*, ByLabel<Metric, Enum>::kSize> metrics;
    for (size_t i = 0; i < metrics.size(); ++i) metrics[i] = &add(LabelValues(Enum{})[i]);
    return ByLabel<Metric, Enum>(metrics);
  }
  void RemoveReader(size_t id);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
