#include "router/registry/worker_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::router {

WorkerTable::WorkerTable(const std::vector<WorkerSpec>& specs, WorkerTableOptions options)
    : options_(options) {
  for (const WorkerSpec& spec : specs) {
    Row& row = rows_.emplace_back();
    row.worker.role = spec.role;
    row.worker.target = spec.target;
    row.worker.id.address = spec.target;
    row.worker.not_ready_reason = "not reached yet";
  }
}

WorkerTable::OpenAtSend WorkerTable::OpenNow(size_t index) const {
  const OpenWork& open = *rows_[index].worker.open;
  return {.requests = open.requests, .prompt_tokens = open.prompt_tokens};
}

std::string WorkerTable::WhyUnusable(const Row& row, const WorkerReport& report) const {
  if (report.role != row.worker.role) {
    return absl::StrCat("configured as ", WorkerRoleName(row.worker.role), " but reports ",
                        report.role ? WorkerRoleName(*report.role) : "no role");
  }
  if (report.tokenizer_hash != 0 && report.tokenizer_hash != options_.tokenizer_hash) {
    return absl::StrFormat("tokenizer hash is %016x, the router's is %016x", report.tokenizer_hash,
                           options_.tokenizer_hash);
  }
  if (!report.ready) return "worker says it is not ready (starting or draining)";
  return "";
}

void WorkerTable::OnReport(size_t index, const WorkerReport& report, OpenAtSend open) {
  Row& row = rows_[index];
  Worker& worker = row.worker;
  if (worker.id.incarnation != report.self.incarnation) {
    row.failures_in_a_row = 0;
    worker.cooling_until = {};
  }
  worker.id = report.self;
  if (worker.id.address.empty()) worker.id.address = worker.target;
  worker.semantics_hash = report.semantics_hash;
  worker.max_context_tokens = report.max_context_tokens;
  worker.load = report.load;
  worker.requests_at_report = open.requests;
  worker.prompt_tokens_at_report = open.prompt_tokens;
  worker.not_ready_reason = WhyUnusable(row, report);
  worker.ready = worker.not_ready_reason.empty();
  row.polled = true;
  row.timeouts_in_a_row = 0;
}

void WorkerTable::OnPollFailed(size_t index, const absl::Status& status) {
  constexpr int kTimeoutsAllowed = 1;
  Row& row = rows_[index];
  row.polled = true;
  if (absl::IsDeadlineExceeded(status) && ++row.timeouts_in_a_row <= kTimeoutsAllowed) return;
  row.worker.ready = false;
  row.worker.not_ready_reason = absl::StrCat("does not answer: ", status.message());
}

WorkerTable::Row* WorkerTable::Find(const WorkerId& id) {
  const auto row =
      std::ranges::find_if(rows_, [&](const Row& row) { return id.Means(row.worker.id); });
  return row == rows_.end() ? nullptr : &*row;
}

void WorkerTable::OnRequestFailed(const WorkerId& id, Clock::TimePoint now) {
  Row* row = Find(id);
  if (row == nullptr) return;
  constexpr int kMaxDoublings = 16;
  const auto pause = options_.cool_down * (1 << std::min(row->failures_in_a_row, kMaxDoublings));
  ++row->failures_in_a_row;
  row->worker.cooling_until = now + std::min<Clock::Duration>(pause, options_.max_cool_down);
}

bool WorkerTable::OnRequestSucceeded(const WorkerId& id) {
  Row* row = Find(id);
  if (row == nullptr || row->failures_in_a_row == 0) return false;
  row->failures_in_a_row = 0;
  row->worker.cooling_until = {};
  return true;
}

Snapshot WorkerTable::MakeSnapshot() const {
  Snapshot snapshot;
  snapshot.workers.reserve(rows_.size());
  for (const Row& row : rows_) snapshot.workers.push_back(row.worker);
  return snapshot;
}

bool WorkerTable::AllPolled() const {
  return std::ranges::all_of(rows_, [](const Row& row) { return row.polled; });
}

}  // namespace baton::router
