#include "cli/bench/replay.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Clock = Generation::Clock;
constexpr auto kLookUp = std::chrono::milliseconds(50);

// What the threads of a run share. Each record is written by the one thread that has its request.
class Run {
 public:
  Run(const std::vector<TraceRequest>& requests, const ReplayOptions& options)
      : requests_(requests), options_(options), records_(requests.size()) {}

  double Now() const { return Seconds(Clock::now()); }
  Clock::time_point At(double seconds) const {
    return begin_ +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  double Due(size_t index) const {
    return static_cast<double>(requests_[index].timestamp_ms) / 1e3 / options_.speed;
  }
  HttpClient Client() const {
    return HttpClient(options_.url, {.silence_timeout = options_.silence_timeout,
                                     .cancelled = [this] { return Ends(); },
                                     .authorization = options_.authorization,
                                     .ca_file = options_.ca_file});
  }

  void Send(HttpClient& client, size_t index, double due) {
    RequestRecord& record = records_[index];
    nlohmann::json body = {{"model", options_.model},
                           {"prompt", PromptTokens(requests_[index], index, options_.prompts)},
                           {"max_tokens", requests_[index].output_length},
                           {"ignore_eos", true},
                           {"temperature", options_.temperature}};
    record.attempted = true;
    record.due = due;
    record.sent = Now();
    const absl::StatusOr<Generation> answer =
        StreamGeneration(client, "/v1/completions", std::move(body));
    record.ended = Now();
    record.status = answer.status();
    if (answer.ok()) Fill(*answer, record);
    done_.fetch_add(1);
  }

  // What is under way is cancelled, nothing new begins.
  bool Ends() const { return Interrupts::Pending() || abandoned_; }
  void Abandon() { abandoned_ = true; }

  int64_t done() const { return done_.load(); }
  const std::vector<TraceRequest>& requests() const { return requests_; }
  const ReplayOptions& options() const { return options_; }
  std::vector<RequestRecord> TakeRecords() { return std::move(records_); }

 private:
  double Seconds(Clock::time_point time) const {
    return std::chrono::duration<double>(time - begin_).count();
  }

  void Fill(const Generation& answer, RequestRecord& record) const {
    record.prompt_tokens = answer.prompt_tokens;
    record.cached_tokens = answer.cached_tokens;
    record.completion_tokens = answer.completion_tokens;
    record.handoff_bytes = answer.served_by.handoff_bytes;
    record.prefill_worker = answer.served_by.prefill_worker;
    record.decode_worker = answer.served_by.decode_worker;
    record.first = record.last = record.ended;  // if no token made visible text
    for (size_t i = 0; i < answer.arrivals.size(); ++i) {
      const double time = Seconds(answer.arrivals[i].time);
      if (i == 0) {
        record.first = time;
        record.first_tokens = answer.arrivals[i].tokens;
      } else if (const int64_t tokens = answer.arrivals[i].tokens - answer.arrivals[i - 1].tokens;
                 tokens > 0) {
        record.gaps.insert(record.gaps.end(), tokens, (time - record.last) / tokens);
      }
      record.last = time;
    }
  }

  const std::vector<TraceRequest>& requests_;
  const ReplayOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<RequestRecord> records_;
  std::atomic<int64_t> done_{0};
  std::atomic<bool> abandoned_{false};
};

template <typename Serve>
absl::Status AddThread(const Serve& serve, std::vector<std::thread>& threads) try {
  threads.emplace_back(serve);
  return absl::OkStatus();
} catch (const std::system_error& error) {
  return absl::UnavailableError(absl::StrCat("no thread for ", threads.size() + 1,
                                             " requests at a time: ", error.code().message()));
}

// Open loop: as many threads as requests have ever been under way at a time.
class OpenLoop {
 public:
  explicit OpenLoop(Run& run) : run_(run) {}

  absl::Status Drive(const std::function<void(int64_t)>& on_done) {
    absl::Status status;
    for (size_t index = 0; index < run_.requests().size() && !run_.Ends(); ++index) {
      const Clock::time_point due = run_.At(run_.Due(index));
      while (Clock::now() < due && !run_.Ends()) {
        std::this_thread::sleep_until(std::min(due, Clock::now() + kLookUp));
        on_done(run_.done());
      }
      if (run_.Ends()) break;
      status = Enqueue(index);
      if (!status.ok()) run_.Abandon();
    }
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.NotifyAll();
    const auto total = static_cast<int64_t>(enqueued_);
    while (run_.done() < total && !run_.Ends()) {
      std::this_thread::sleep_for(kLookUp);
      on_done(run_.done());
    }
    for (std::thread& thread : threads_) thread.join();
    return status;
  }

 private:
  absl::Status Enqueue(size_t index) {
    ++enqueued_;
    MutexLock lock(mutex_);
    queue_.push_back(index);
    if (idle_ >= queue_.size() ||
        threads_.size() >= static_cast<size_t>(run_.options().max_in_flight)) {
      changed_.NotifyOne();
      return absl::OkStatus();
    }
    return AddThread([this] { Serve(); }, threads_);
  }

  void Serve() {
    HttpClient client = run_.Client();
    while (const std::optional<size_t> index = Next()) run_.Send(client, *index, run_.Due(*index));
  }

  std::optional<size_t> Next() {
    MutexLock lock(mutex_);
    ++idle_;
    while (!closed_ && queue_.empty()) changed_.Wait(mutex_);
    --idle_;
    if (queue_.empty() || run_.Ends()) return std::nullopt;
    const size_t index = queue_.front();
    queue_.pop_front();
    return index;
  }

  Run& run_;
  size_t enqueued_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::deque<size_t> queue_ ABSL_GUARDED_BY(mutex_);  // due, not yet taken
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;           // threads that wait
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// What one client of a closed loop does without a break: the requests of a session, or one.
std::vector<std::vector<size_t>> Units(const std::vector<TraceRequest>& requests) {
  std::vector<std::vector<size_t>> units;
  std::map<int64_t, size_t> unit_of_session;
  for (size_t index = 0; index < requests.size(); ++index) {
    const int64_t session = requests[index].session_id;
    const auto [found, added] = unit_of_session.try_emplace(session, units.size());
    if (session < 0 || added) {
      units.push_back({index});
    } else {
      units[found->second].push_back(index);
    }
  }
  return units;
}

absl::Status DriveClosedLoop(Run& run, const std::function<void(int64_t)>& on_done) {
  const std::vector<std::vector<size_t>> units = Units(run.requests());
  // More would find nothing to do.
  const size_t clients = std::min<size_t>(run.options().concurrency, units.size());
  std::atomic<size_t> next{0}, finished{0};
  const auto serve = [&] {
    HttpClient client = run.Client();
    for (size_t unit; (unit = next.fetch_add(1)) < units.size();) {
      for (const size_t index : units[unit]) {
        if (!run.Ends()) run.Send(client, index, run.Now());
      }
    }
    finished.fetch_add(1);
  };
  std::vector<std::thread> threads;
  absl::Status status;
  while (threads.size() < clients && status.ok()) status = AddThread(serve, threads);
  if (!status.ok()) run.Abandon();
  while (finished.load() < threads.size()) {
    std::this_thread::sleep_for(kLookUp);
    on_done(run.done());
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace

double RequestRecord::tpot() const {
  const int64_t after = completion_tokens - first_tokens;
  return after > 0 ? (last - first) / static_cast<double>(after)
                   : std::numeric_limits<double>::quiet_NaN();
}

absl::StatusOr<std::vector<RequestRecord>> Replay(
    const std::vector<TraceRequest>& requests, const ReplayOptions& options,
    const std::function<void(int64_t done)>& on_done) {
  Run run(requests, options);
  BATON_RETURN_IF_ERROR(options.concurrency > 0 ? DriveClosedLoop(run, on_done)
                                                : OpenLoop(run).Drive(on_done));
  return run.TakeRecords();
}

}  // namespace baton::cli
