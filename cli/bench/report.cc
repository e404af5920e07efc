#include "cli/bench/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/json_dump.h"
#include "cli/terminal.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* KindOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return "ok";
    case absl::StatusCode::kResourceExhausted:
      return "overload";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    case absl::StatusCode::kUnavailable:
      return "unavailable";
    case absl::StatusCode::kInvalidArgument:
      return "refused";
    case absl::StatusCode::kCancelled:
      return "interrupted";
    case absl::StatusCode::kDataLoss:
      return "malformed";
    default:
      return "server error";
  }
}

bool Good(const RequestRecord& record, const Objectives& objectives) {
  const double tpot = record.tpot();  // NaN: a single token keeps any
  return record.status.ok() && record.ttft() <= objectives.ttft_s && !(tpot > objectives.tpot_s) &&
         record.e2e() <= objectives.e2e_s;
}

std::string Cell(double seconds) {
  return std::isfinite(seconds) ? HumanDuration(std::chrono::duration<double>(seconds)) : "-";
}

Json Milliseconds(double seconds) { return std::isfinite(seconds) ? Json(seconds * 1e3) : Json(); }

Json SummaryJson(const Summary& summary) {
  return {{"mean", Milliseconds(summary.mean)},
          {"p50", Milliseconds(summary.p50)},
          {"p90", Milliseconds(summary.p90)},
          {"p95", Milliseconds(summary.p95)},
          {"p99", Milliseconds(summary.p99)},
          {"max", Milliseconds(summary.max)},
          {"samples", summary.count}};
}

// As RFC 4180 has it: a server may say anything.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

bool Objectives::any() const {
  return std::isfinite(ttft_s) || std::isfinite(tpot_s) || std::isfinite(e2e_s);
}

BenchReport MakeReport(const std::vector<RequestRecord>& records, const Objectives& objectives) {
  BenchReport report;
  std::vector<double> ttft, tpot, itl, e2e, delay;
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  int64_t good = 0;
  for (const RequestRecord& record : records) {
    if (!record.attempted) continue;
    ++report.requests;
    begin = std::min(begin, record.due);
    end = std::max(end, record.ended);
    delay.push_back(record.sent - record.due);
    if (!record.status.ok()) {
      const char* kind = KindOf(record.status);
      ++report.failures[kind];
      report.examples.try_emplace(kind, record.status.message());
      continue;
    }
    ++report.succeeded;
    if (Good(record, objectives)) ++good;
    report.prompt_tokens += record.prompt_tokens;
    report.cached_tokens += record.cached_tokens;
    report.completion_tokens += record.completion_tokens;
    report.handoff_bytes += record.handoff_bytes;
    ttft.push_back(record.ttft());
    e2e.push_back(record.e2e());
    itl.insert(itl.end(), record.gaps.begin(), record.gaps.end());
    if (const double time = record.tpot(); std::isfinite(time)) tpot.push_back(time);
  }
  report.duration_s = report.requests > 0 ? end - begin : 0;
  const auto rate = [&](int64_t count) {
    return report.duration_s > 0 ? static_cast<double>(count) / report.duration_s : 0;
  };
  report.requests_per_s = rate(report.succeeded);
  report.prompt_tokens_per_s = rate(report.prompt_tokens);
  report.completion_tokens_per_s = rate(report.completion_tokens);
  report.ttft = Summarize(std::move(ttft));
  report.tpot = Summarize(std::move(tpot));
  report.itl = Summarize(std::move(itl));
  report.e2e = Summarize(std::move(e2e));
  report.send_delay = Summarize(std::move(delay));
  report.has_objectives = objectives.any();
  report.good_requests_per_s = rate(good);
  report.good_share = report.requests > 0 ? static_cast<double>(good) / report.requests : 0;
  return report;
}

std::string ReportText(const BenchReport& report, bool colour) {
  std::string text = absl::StrFormat(
      "%s, seed %d: %d of %d requests succeeded in %s: %.2f requests/s\n"
      "%.0f prompt tokens/s (%d, %.1f%% of them cached), %.0f output tokens/s (%d), %s handed "
      "over\n",
      report.load, report.seed, report.succeeded, report.requests, Cell(report.duration_s),
      report.requests_per_s, report.prompt_tokens_per_s, report.prompt_tokens,
      report.prompt_tokens > 0 ? 100.0 * report.cached_tokens / report.prompt_tokens : 0,
      report.completion_tokens_per_s, report.completion_tokens,
      HumanBytes(static_cast<double>(report.handoff_bytes)));
  if (report.has_objectives) {
    absl::StrAppendFormat(&text, "goodput: %.2f requests/s within the objectives (%.1f%%)\n",
                          report.good_requests_per_s, 100 * report.good_share);
  }
  for (const auto& [kind, count] : report.failures) {
    absl::StrAppend(&text,
                    Styled(absl::StrFormat("%d %s, such as: %s", count, kind,
                                           Harmless(report.examples.at(kind))),
                           Style::kRed, colour),
                    "\n");
  }
  Table table({"latency", "mean", "p50", "p90", "p95", "p99", "max", "samples"});
  const auto add = [&](const char* name, const Summary& summary) {
    table.AddRow({name, Cell(summary.mean), Cell(summary.p50), Cell(summary.p90), Cell(summary.p95),
                  Cell(summary.p99), Cell(summary.max), absl::StrCat(summary.count)});
  };
  add("TTFT (due to first token)", report.ttft);
  add("TPOT (per token after it)", report.tpot);
  add("ITL (between tokens)", report.itl);
  add("E2E (due to end)", report.e2e);
  add("due to sent", report.send_delay);
  return absl::StrCat(text, "\n", table.ToString(colour));
}

std::string ReportText(const std::vector<BenchReport>& reports, bool colour) {
  Table table({"load", "requests/s", "output tokens/s", "TTFT p50", "p99", "TPOT p50", "p99",
               "E2E p50", "good/s", "failed"});
  for (const BenchReport& report : reports) {
    table.AddRow({report.load, absl::StrFormat("%.2f", report.requests_per_s),
                  absl::StrFormat("%.0f", report.completion_tokens_per_s), Cell(report.ttft.p50),
                  Cell(report.ttft.p99), Cell(report.tpot.p50), Cell(report.tpot.p99),
                  Cell(report.e2e.p50),
                  report.has_objectives ? absl::StrFormat("%.2f", report.good_requests_per_s) : "-",
                  absl::StrCat(report.requests - report.succeeded)});
  }
  return table.ToString(colour);
}

std::string ReportJson(const BenchReport& report) {
  Json json = {{"load", report.load},
               {"seed", report.seed},
               {"requests", report.requests},
               {"succeeded", report.succeeded},
               {"failures", report.failures},
               {"duration_s", report.duration_s},
               {"requests_per_s", report.requests_per_s},
               {"prompt_tokens", report.prompt_tokens},
               {"cached_tokens", report.cached_tokens},
               {"completion_tokens", report.completion_tokens},
               {"prompt_tokens_per_s", report.prompt_tokens_per_s},
               {"completion_tokens_per_s", report.completion_tokens_per_s},
               {"handoff_bytes", report.handoff_bytes},
               {"ttft_ms", SummaryJson(report.ttft)},
               {"tpot_ms", SummaryJson(report.tpot)},
               {"itl_ms", SummaryJson(report.itl)},
               {"e2e_ms", SummaryJson(report.e2e)},
               {"send_delay_ms", SummaryJson(report.send_delay)}};
  if (report.has_objectives) {
    json["good_requests_per_s"] = report.good_requests_per_s;
    json["good_share"] = report.good_share;
  }
  return Dump(json) + "\n";
}

std::string CsvHeader() {
  return "load,request,outcome,due_s,sent_s,ttft_ms,tpot_ms,e2e_ms,prompt_tokens,cached_tokens,"
         "completion_tokens,handoff_bytes,prefill_worker,decode_worker\n";
}

std::string RecordsCsv(const std::string& load, const std::vector<RequestRecord>& records) {
  std::string csv;
  for (size_t i = 0; i < records.size(); ++i) {
    const RequestRecord& record = records[i];
    if (!record.attempted) continue;
    const auto ms = [&](double seconds) {
      return record.status.ok() && std::isfinite(seconds) ? absl::StrFormat("%.3f", seconds * 1e3)
                                                          : "";
    };
    absl::StrAppend(&csv, load, ",", i, ",", KindOf(record.status), ",",
                    absl::StrFormat("%.6f", record.due), ",", absl::StrFormat("%.6f", record.sent),
                    ",", ms(record.ttft()), ",", ms(record.tpot()), ",", ms(record.e2e()), ",",
                    record.prompt_tokens, ",", record.cached_tokens, ",", record.completion_tokens,
                    ",", record.handoff_bytes, ",", CsvField(record.prefill_worker), ",",
                    CsvField(record.decode_worker), "\n");
  }
  return csv;
}

}  // namespace baton::cli
