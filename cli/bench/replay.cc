#include "cli/bench/replay.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "cli/generation.h"
#include "cli/interrupt.h"
#include "common/mutex.h"
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
                                     .cancelled = Interrupts::Pending,
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
};

// Open loop: as many threads as requests have ever been under way at a time.
class OpenLoop {
 public:
  explicit OpenLoop(Run& run) : run_(run) {}

  void Drive(const std::function<void(int64_t)>& on_done) {
    for (size_t index = 0; index < run_.requests().size() && !Interrupts::Pending(); ++index) {
      const Clock::time_point due = run_.At(run_.Due(index));
      while (Clock::now() < due && !Interrupts::Pending()) {
        std::this_thread::sleep_until(std::min(due, Clock::now() + kLookUp));
        on_done(run_.done());
      }
      if (!Interrupts::Pending()) Enqueue(index);
    }
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.NotifyAll();
    const auto total = static_cast<int64_t>(enqueued_);
    while (run_.done() < total && !Interrupts::Pending()) {
      std::this_thread::sleep_for(kLookUp);
      on_done(run_.done());
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Enqueue(size_t index) {
    ++enqueued_;
    MutexLock lock(mutex_);
    queue_.push_back(index);
    if (idle_ >= queue_.size() ||
        threads_.size() >= static_cast<size_t>(run_.options().max_in_flight)) {
      changed_.NotifyOne();
    } else {
      threads_.emplace_back([this] { Serve(); });
    }
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
    if (queue_.empty() || Interrupts::Pending()) return std::nullopt;
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

void DriveClosedLoop(Run& run, const std::function<void(int64_t)>& on_done) {
  const std::vector<std::vector<size_t>> units = Units(run.requests());
  std::atomic<size_t> next{0};
  std::atomic<int> running{run.options().concurrency};
  const auto serve = [&] {
    HttpClient client = run.Client();
    for (size_t unit; (unit = next.fetch_add(1)) < units.size();) {
      for (const size_t index : units[unit]) {
        if (!Interrupts::Pending()) run.Send(client, index, run.Now());
      }
    }
    running.fetch_sub(1);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < run.options().concurrency; ++i) threads.emplace_back(serve);
  while (running.load() > 0) {
    std::this_thread::sleep_for(kLookUp);
    on_done(run.done());
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

double RequestRecord::tpot() const {
  const int64_t after = completion_tokens - first_tokens;
  return after > 0 ? (last - first) / static_cast<double>(after)
                   : std::numeric_limits<double>::quiet_NaN();
}

std::vector<RequestRecord> Replay(const std::vector<TraceRequest>& requests,
                                  const ReplayOptions& options,
                                  const std::function<void(int64_t done)>& on_done) {
  Run run(requests, options);
  if (options.concurrency > 0) {
    DriveClosedLoop(run, on_done);
  } else {
    OpenLoop(run).Drive(on_done);
  }
  return run.TakeRecords();
}

}  // namespace baton::cli
