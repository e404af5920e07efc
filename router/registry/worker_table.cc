#include "router/registry/worker_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/request_protocol.h"
#include "router/registry/fit.h"

namespace baton::router {
namespace {

// Why `worker`, which is ready, has nobody to work with among `workers`; empty if it has, or if the
// other role is not there at all.
std::string MismatchOf(const Worker& worker, const std::vector<Worker>& workers) {
  const Worker* other = nullptr;
  int others = 0;
  for (const Worker& candidate : workers) {
    if (!candidate.ready || candidate.role == worker.role) continue;
    if (Fit(worker, candidate)) return "";
    if (++others == 1) other = &candidate;
  }
  if (other == nullptr) return "";
  return absl::StrCat("fits none of ", others, " ready ", WorkerRoleName(other->role),
                      " workers: ", WhyUnfit(worker, *other));
}

}  // namespace

void WorkerTable::SetMembers(const std::vector<WorkerSpec>& specs) {
  const auto is_spec_of = [](const Row& row) {
    return [&](const WorkerSpec& spec) {
      return spec == WorkerSpec{.role = row.worker.role, .target = row.worker.target};
    };
  };
  for (const WorkerSpec& spec : specs) {
    const auto row = std::ranges::find_if(rows_, [&](const Row& r) { return is_spec_of(r)(spec); });
    if (row != rows_.end()) {
      row->leaving = false;  // the next poll says whether it can be used
      continue;
    }
    Worker& worker = rows_.emplace_back().worker;
    worker.key = next_key_++;
    worker.role = spec.role;
    worker.target = spec.target;
    worker.id.address = spec.target;
    worker.not_ready_reason = "not reached yet";
  }
  for (Row& row : rows_) {
    if (std::ranges::none_of(specs, is_spec_of(row))) Leave(row);
  }
  std::erase_if(rows_,
                [](const Row& row) { return row.leaving && row.worker.open->requests == 0; });
}

void WorkerTable::Leave(Row& row) {
  row.leaving = true;
  row.worker.ready = false;
  row.worker.not_ready_reason = "no longer a member, finishes what it has";
}

void WorkerTable::ForgetIfDone(WorkerKey key) {
  std::erase_if(rows_, [key](const Row& row) {
    return row.worker.key == key && row.leaving && row.worker.open->requests == 0;
  });
}

WorkerTable::OpenAtSend WorkerTable::OpenNow(WorkerKey key) const {
  const auto row = std::ranges::find_if(rows_, [&](const Row& r) { return r.worker.key == key; });
  if (row == rows_.end()) return {};
  const OpenWork& open = *row->worker.open;
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
  if (report.request_protocol < rpc::kRequestProtocol) {
    return absl::StrCat("understands version ", report.request_protocol,
                        " of the request protocol, the router speaks version ",
                        rpc::kRequestProtocol, ": workers are replaced before routers");
  }
  if (!report.ready) return "it is draining";
  return "";
}

void WorkerTable::OnReport(WorkerKey key, const WorkerReport& report, OpenAtSend open) {
  Row* const found = Find(key);
  if (found == nullptr) return;
  Row& row = *found;
  Worker& worker = row.worker;
  if (worker.id.incarnation != report.self.incarnation) {
    row.failures_in_a_row = 0;
    worker.cooling_until = {};
  }
  worker.id = report.self;
  worker.name = report.name;
  if (worker.id.address.empty()) worker.id.address = worker.target;
  worker.semantics_hash = report.semantics_hash;
  worker.semantics =
      report.semantics.empty() ? nullptr : std::make_shared<const Semantics>(report.semantics);
  worker.transports = report.transports;
  worker.max_context_tokens = report.max_context_tokens;
  worker.load = report.load;
  worker.requests_at_report = open.requests;
  worker.prompt_tokens_at_report = open.prompt_tokens;
  worker.not_ready_reason = WhyUnusable(row, report);
  worker.ready = worker.not_ready_reason.empty();
  row.polled = true;
  row.timeouts_in_a_row = 0;
  if (row.leaving) Leave(row);
  ForgetIfDone(key);
}

void WorkerTable::OnPollFailed(WorkerKey key, const absl::Status& status) {
  constexpr int kTimeoutsAllowed = 1;
  Row* const row = Find(key);
  if (row == nullptr) return;
  row->polled = true;
  if (absl::IsDeadlineExceeded(status) && ++row->timeouts_in_a_row <= kTimeoutsAllowed) return;
  row->worker.ready = false;
  row->worker.not_ready_reason = std::string(status.message());
  if (row->leaving) Leave(*row);
  ForgetIfDone(key);
}

WorkerTable::Row* WorkerTable::Find(WorkerKey key) {
  const auto row = std::ranges::find_if(rows_, [&](const Row& r) { return r.worker.key == key; });
  return row == rows_.end() ? nullptr : &*row;
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
  snapshot.prefill_is_split = options_.prefill_is_split;
  snapshot.workers.reserve(rows_.size());
  for (const Row& row : rows_) snapshot.workers.push_back(row.worker);
  if (!options_.prefill_is_split) return snapshot;
  for (Worker& worker : snapshot.workers) {
    if (worker.ready) worker.mismatch = MismatchOf(worker, snapshot.workers);
  }
  return snapshot;
}

bool WorkerTable::AllPolled() const {
  return std::ranges::all_of(rows_, [](const Row& row) { return row.polled; });
}

}  // namespace baton::router
