#include "tests/golden/golden_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace baton::golden {
namespace {

using engine::ForwardObserver;
using engine::ForwardResult;
using engine::SequenceChunk;
using Clock = std::chrono::steady_clock;

constexpr int kSlot = 0;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int32_t Argmax(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<float> ToFloat(std::span<const BFloat16> values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [](BFloat16 value) { return static_cast<float>(value); });
  return result;
}

// |a and b| / |b| of two ascending lists.
double Overlap(const std::vector<int32_t>& actual, const std::vector<int32_t>& expected) {
  if (expected.empty()) return 1;
  std::vector<int32_t> common;
  std::set_intersection(actual.begin(), actual.end(), expected.begin(), expected.end(),
                        std::back_inserter(common));
  return static_cast<double>(common.size()) / static_cast<double>(expected.size());
}

}  // namespace

void Deviation::Add(std::span<const float> actual, std::span<const float> expected, int64_t width) {
  for (size_t row = 0; row < expected.size(); row += width) {
    double sum = 0;
    double sum_squares = 0;
    double difference_squares = 0;
    for (size_t i = row; i < row + width; ++i) {
      const double difference = std::abs(double{actual[i]} - double{expected[i]});
      max_abs_ = difference <= max_abs_ ? max_abs_ : difference;  // keeps a NaN
      difference_squares += difference * difference;
      sum += expected[i];
      sum_squares += double{expected[i]} * double{expected[i]};
    }
    const auto n = static_cast<double>(width);
    const double variance = sum_squares / n - (sum / n) * (sum / n);
    const double ratio = std::sqrt(difference_squares / n / variance);
    ratios_.push_back(std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
  }
}

double Deviation::Ratio(double q) const { return ratios_.empty() ? 0 : Quantile(ratios_, q); }

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::ceil(q * static_cast<double>(values.size() - 1)))];
}

GoldenRunner::GoldenRunner(engine::Model& model, engine::CacheStorage& cache,
                           const RunOptions& options)
    : model_(model), cache_(cache), options_(options) {
  pages_.resize(cache.geometry().options.pages);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937(1));
}

CaseResult GoldenRunner::Run(const GoldenCase& golden) {
  const int64_t vocabulary = model_.config().vocab_size;
  const auto prompt = static_cast<int64_t>(golden.ids.size());
  CaseResult result;
  std::map<int, std::vector<int32_t>> selected;  // of the last row that ran
  const ForwardObserver observer{.on_layer = nullptr,
                                 .on_selection = [&](int layer, int64_t, auto entries) {
                                   selected[layer].assign(entries.begin(), entries.end());
                                 }};

  Clock::time_point start = Clock::now();
  ForwardResult forward;
  for (int64_t done = 0; done < prompt; done += options_.chunk) {
    const int64_t rows = std::min(options_.chunk, prompt - done);
    const bool is_last = done + rows == prompt;
    const SequenceChunk chunk{
        .tokens = std::span(golden.ids).subspan(done, rows),
        .start = done,
        .pages = pages_,
        .slot = kSlot,
        .first_logits_row = static_cast<int>(is_last ? rows - 1 : rows),
        .first_streams_row = static_cast<int>(rows),
    };
    forward = model_.Forward({&chunk, 1}, cache_, observer);
  }
  result.prefill_seconds = SecondsSince(start);

  start = Clock::now();
  for (size_t step = 0; step < golden.out.size(); ++step) {
    if (step > 0) {
      const SequenceChunk chunk{.tokens = std::span(golden.out).subspan(step - 1, 1),
                                .start = prompt + static_cast<int64_t>(step) - 1,
                                .pages = pages_,
                                .slot = kSlot};
      forward = model_.Forward({&chunk, 1}, cache_, observer);
    }
    result.out.push_back(Argmax(forward.logits));
    result.logits.Add(forward.logits,
                      std::span(golden.logits).subspan(step * vocabulary, vocabulary), vocabulary);
  }
  result.decode_seconds = SecondsSince(start);
  result.tokens_equal = result.out == golden.out;
  for (const auto& [layer, entries] : golden.selected) {
    result.overlap[layer] = Overlap(selected[layer], entries);
  }
  return result;
}

TraceResult GoldenRunner::Run(const GoldenTrace& golden) {
  const int64_t vocabulary = model_.config().vocab_size;
  const int64_t width = int64_t{model_.config().hc_mult} * model_.config().hidden_size;
  const auto rows = static_cast<int64_t>(golden.ids.size());
  TraceResult result;
  std::vector<BFloat16> streams;
  for (int64_t done = 0; done < rows; done += options_.chunk) {
    const int64_t count = std::min(options_.chunk, rows - done);
    const auto on_layer = [&](int layer, int64_t first_row, std::span<const BFloat16> x) {
      const auto reference = golden.streams.find(layer);
      if (reference == golden.streams.end()) return;
      const std::span<const BFloat16> expected =
          std::span(reference->second).subspan((done + first_row) * width, x.size());
      result.streams[layer].Add(ToFloat(x), ToFloat(expected), width);
    };
    const SequenceChunk chunk{.tokens = std::span(golden.ids).subspan(done, count),
                              .start = done,
                              .pages = pages_,
                              .slot = kSlot};
    const ForwardResult forward =
        model_.Forward({&chunk, 1}, cache_, {.on_layer = on_layer, .on_selection = nullptr});
    result.logits.Add(forward.logits,
                      std::span(golden.logits).subspan(done * vocabulary, count * vocabulary),
                      vocabulary);
    streams.insert(streams.end(), forward.streams.begin(), forward.streams.end());
  }

  std::vector<int32_t> next(golden.ids.begin() + 1, golden.ids.end());
  next.push_back(golden.ids.back());
  const engine::MtpChunk chunk{
      .next_tokens = next, .streams = streams, .start = 0, .slot = kSlot, .wants_logits = true};
  const ForwardResult mtp = model_.ForwardMtp({&chunk, 1}, cache_);
  result.mtp_logits.Add(mtp.logits, golden.mtp_logits, vocabulary);
  for (int64_t row = 0; row < rows; ++row) {
    result.mtp_argmax_equal +=
        Argmax(mtp.logits.subspan(row * vocabulary, vocabulary)) ==
        Argmax(std::span(golden.mtp_logits).subspan(row * vocabulary, vocabulary));
  }
  return result;
}

}  // namespace baton::golden
