#include "router/policy/route.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "router/field_at_fault.h"
#include "router/registry/fit.h"

namespace baton::router {
namespace {

class RoundRobin final : public Scorer {
 public:
  double Score(const Worker&, const Work&) const override { return 0; }
};

class LeastLoaded : public Scorer {
 public:
  double Score(const Worker& worker, const Work&) const override {
    if (worker.role == WorkerRole::kPrefill) {
      return static_cast<double>(worker.EstimatedQueuedTokens());
    }
    const ReportedLoad& load = worker.load;
    const double used_share = load.pages_total == 0 ? 0
                                                    : 1 - static_cast<double>(load.pages_free) /
                                                              static_cast<double>(load.pages_total);
    return static_cast<double>(worker.EstimatedRequests()) + std::min(used_share, 0.999);
  }
};

// Blocks of prompts that a router remembers: 8 Mi tokens, in some megabytes.
constexpr size_t kRememberedBlocks = size_t{1} << 16;
// How many requests more a decode worker may have for a prompt that it has in its cache.
constexpr double kRequestsForAPrompt = 4;

class PrefixAware final : public LeastLoaded {
 public:
  std::vector<PrefixMemory::Known> Known(std::span<const int32_t> prompt) const override {
    return memory_.Find(prompt);
  }
  double Score(const Worker& worker, const Work& work) const override {
    const double load = LeastLoaded::Score(worker, work);
    const auto cached = static_cast<double>(work.cached);
    if (worker.role == WorkerRole::kPrefill) return load - cached;
    return load -
           kRequestsForAPrompt * cached / static_cast<double>(std::max<int64_t>(work.prompt, 1));
  }
  // The first prefill worker of the list is the one that computes it, unless it is gone.
  void OnChosen(std::span<const int32_t> prompt, const Route& route) override {
    std::vector<WorkerId> workers = {route.decode->id};
    if (!route.prefill.empty()) workers.push_back(route.prefill.front()->id);
    memory_.Remember(prompt, workers);
  }

 private:
  PrefixMemory memory_{kRememberedBlocks};
};

// `score` says the order; among equals the ticket decides, so that they take turns.
std::vector<const Worker*> Ranked(std::vector<const Worker*> workers, uint64_t ticket,
                                  const Scorer& scorer,
                                  const std::vector<PrefixMemory::Known>& known,
                                  const RouteQuery& query) {
  if (workers.empty()) return workers;
  std::ranges::rotate(workers, workers.begin() + static_cast<ptrdiff_t>(ticket % workers.size()));
  std::vector<std::pair<double, const Worker*>> scored;
  for (const Worker* worker : workers) {
    const auto cached = std::ranges::find(known, worker->id, &PrefixMemory::Known::worker);
    scored.emplace_back(
        scorer.Score(*worker, {.prompt = query.prompt_tokens,
                               .cached = cached == known.end() ? 0 : cached->tokens}),
        worker);
  }
  std::ranges::stable_sort(scored, {}, &std::pair<double, const Worker*>::first);
  for (size_t i = 0; i < scored.size(); ++i) workers[i] = scored[i].second;
  return workers;
}

std::vector<const Worker*> Usable(const Snapshot& snapshot, WorkerRole role,
                                  const RouteQuery& query) {
  std::vector<const Worker*> usable;
  for (const Worker& worker : snapshot.workers) {
    const bool avoided = std::ranges::any_of(
        query.avoid, [&](const WorkerId& failed) { return failed.Means(worker.id); });
    if (worker.role == role && worker.ready && !avoided) usable.push_back(&worker);
  }
  return usable;
}

// Workers that failed lately serve only when there are no others.
void DropCooling(std::vector<const Worker*>& workers, Clock::TimePoint now) {
  const auto cooling = [&](const Worker* worker) { return worker->cooling_until > now; };
  if (!std::ranges::all_of(workers, cooling)) std::erase_if(workers, cooling);
}

absl::Status NoneReady(const Snapshot& snapshot, WorkerRole role, const RouteQuery& query) {
  return absl::UnavailableError(absl::StrCat(
      "no ", WorkerRoleName(role), " worker can take the request: ", snapshot.CountReady(role),
      " of ", snapshot.Count(role), " ready",
      query.avoid.empty() ? "" : ", and this request failed on some of them already"));
}

std::string WhyNoneReady(const Snapshot& snapshot, WorkerRole role) {
  if (snapshot.Count(role) == 0) {
    return absl::StrCat("no ", WorkerRoleName(role), " worker is known");
  }
  std::vector<std::string> reasons;
  for (const Worker& worker : snapshot.workers) {
    if (worker.role != role) continue;
    reasons.push_back(absl::StrCat(worker.target, " (", worker.not_ready_reason, ")"));
  }
  return absl::StrCat("no ", WorkerRoleName(role),
                      " worker is ready: ", absl::StrJoin(reasons, ", "));
}

// "decode worker a", "decode workers a, b and 3 more".
std::string NamesOf(const std::vector<const Worker*>& workers) {
  constexpr size_t kMostNames = 4;
  std::vector<std::string> names;
  for (const Worker* worker : workers) names.push_back(worker->target);
  const size_t more = names.size() - std::min(names.size(), kMostNames);
  const char* plural = names.size() == 1 ? "" : "s";
  names.resize(names.size() - more);
  return absl::StrCat(WorkerRoleName(workers.front()->role), " worker", plural, " ",
                      absl::StrJoin(names, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

// There are workers of both roles, but no pair of them works together. The first of each stand for
// the others: /health has a reason for each.
absl::Status NoneFits(const std::vector<const Worker*>& prefills,
                      const std::vector<const Worker*>& decodes) {
  return absl::UnavailableError(absl::StrCat(NamesOf(prefills), " cannot work with ",
                                             NamesOf(decodes), ": ",
                                             WhyUnfit(*prefills.front(), *decodes.front())));
}

// What the request takes of a worker's context: a prefill worker samples one token.
uint64_t ContextTokens(WorkerRole role, const RouteQuery& query) {
  return uint64_t{query.prompt_tokens} + (role == WorkerRole::kPrefill ? 1 : query.new_tokens);
}

void DropTooSmall(std::vector<const Worker*>& workers, WorkerRole role, const RouteQuery& query) {
  std::erase_if(workers, [&](const Worker* worker) {
    return worker->max_context_tokens != 0 &&
           ContextTokens(role, query) > worker->max_context_tokens;
  });
}

// The longest context that a ready worker offers; 0 when none is ready or one has no limit.
uint32_t Longest(const Snapshot& snapshot, WorkerRole role) {
  uint32_t longest = 0;
  for (const Worker& worker : snapshot.workers) {
    if (worker.role == role && worker.ready) {
      if (worker.max_context_tokens == 0) return 0;
      longest = std::max(longest, worker.max_context_tokens);
    }
  }
  return longest;
}

// Of the workers that can be used none is large enough.
absl::Status TooLong(const Snapshot& snapshot, WorkerRole role, const RouteQuery& query) {
  const uint32_t longest = Longest(snapshot, role);
  const bool fits_another = longest == 0 || ContextTokens(role, query) <= longest;
  if (fits_another) return NoneReady(snapshot, role, query);
  if (role == WorkerRole::kPrefill) {
    return AtFault("prompt", absl::OutOfRangeError(
                                 absl::StrCat("the longest prompt is ", longest - 1,
                                              " tokens; the request has ", query.prompt_tokens)));
  }
  // Not even one token would fit behind the prompt, or not as many.
  const char* field = query.prompt_tokens >= longest ? "prompt" : "max_tokens";
  return AtFault(field, absl::OutOfRangeError(absl::StrCat(
                            "the longest context is ", longest, " tokens; the request has ",
                            query.prompt_tokens, " in the prompt and asks for up to ",
                            query.new_tokens, " more")));
}

// Of a request that any worker could take.
absl::Status RouteOfShortest(const Snapshot& snapshot) {
  RoundRobin any;
  return ChooseRoute(snapshot, RouteQuery{.prompt_tokens = 1}, any).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& policy) {
  if (policy == "round-robin") return std::make_unique<RoundRobin>();
  if (policy == "least-loaded") return std::make_unique<LeastLoaded>();
  if (policy == "prefix-aware") return std::make_unique<PrefixAware>();
  return absl::InvalidArgumentError(
      absl::StrCat("policy is '", policy, "', expected prefix-aware, least-loaded or round-robin"));
}

uint32_t LongestContext(const Snapshot& snapshot) { return Longest(snapshot, WorkerRole::kDecode); }

absl::StatusOr<Route> ChooseRoute(const Snapshot& snapshot, const RouteQuery& query,
                                  Scorer& scorer) {
  std::vector<const Worker*> decodes = Usable(snapshot, WorkerRole::kDecode, query);
  if (decodes.empty()) return NoneReady(snapshot, WorkerRole::kDecode, query);
  const bool split = snapshot.prefill_is_split;
  std::vector<const Worker*> prefills = Usable(snapshot, WorkerRole::kPrefill, query);
  if (split && prefills.empty()) return NoneReady(snapshot, WorkerRole::kPrefill, query);
  DropTooSmall(prefills, WorkerRole::kPrefill, query);
  if (split && prefills.empty()) return TooLong(snapshot, WorkerRole::kPrefill, query);

  if (split) {
    const auto fits_none = [&](const Worker* decode) {
      return std::ranges::none_of(prefills,
                                  [&](const Worker* prefill) { return Fit(*prefill, *decode); });
    };
    if (std::ranges::all_of(decodes, fits_none)) return NoneFits(prefills, decodes);
    std::erase_if(decodes, fits_none);
  }
  DropTooSmall(decodes, WorkerRole::kDecode, query);
  if (decodes.empty()) return TooLong(snapshot, WorkerRole::kDecode, query);

  Route route;
  const std::vector<PrefixMemory::Known> known = scorer.Known(query.prompt);
  DropCooling(decodes, query.now);
  route.decode = Ranked(decodes, query.ticket, scorer, known, query).front();
  std::erase_if(prefills, [&](const Worker* prefill) { return !Fit(*prefill, *route.decode); });
  DropCooling(prefills, query.now);
  // A slower turn for prefill workers: equal numbers of both must not always meet in pairs.
  route.prefill =
      Ranked(prefills, query.ticket + query.ticket / decodes.size(), scorer, known, query);
  if (route.prefill.size() > kMaxPrefillChoices) route.prefill.resize(kMaxPrefillChoices);
  scorer.OnChosen(query.prompt, route);
  return route;
}

bool HasRoute(const Snapshot& snapshot) { return RouteOfShortest(snapshot).ok(); }

std::string WhyNoRoute(const Snapshot& snapshot) {
  const absl::Status status = RouteOfShortest(snapshot);
  if (status.ok()) return "";
  std::vector<std::string> missing;
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    const bool needed = role == WorkerRole::kDecode || snapshot.prefill_is_split;
    if (needed && snapshot.CountReady(role) == 0) missing.push_back(WhyNoneReady(snapshot, role));
  }
  if (!missing.empty()) return absl::StrJoin(missing, "; ");
  return std::string(status.message());
}

}  // namespace baton::router
