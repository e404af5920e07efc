#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"

// What sequences begin from, and what they leave to the prefix cache.

namespace baton::engine {

// Two places of a prompt are worth a snapshot while it is computed: the last page boundary before
// its end, where the same prompt or one with another end can begin; and the end of the pages that
// it shares with an earlier prompt, for where two part a third will. Retire keeps the end itself.
void Engine::Impl::Begin(Sequence& sequence, PrefixUse use, const CacheLedger::Opening& opening) {
  Sequence::State& state = *sequence.state_;
  sequence.cached_tokens_ = opening.shared_tokens;
  if (opening.state != nullptr) {
    opening.state->Restore(*state.records, layout);
    sequence.cached_tokens_ = sequence.state_tokens_ = opening.state->tokens();
  }
  if (use == PrefixUse::kReceive) return;
  sequence.computed_ = state.forwarded = sequence.cached_tokens_;
  if (sequence.computed_ > 0) {
    // A snapshot ends before the MTP row of its last position, which needs the token after it.
    state.mtp_rows = sequence.computed_ - 1;
    CatchUpMtpRows(sequence);
  }
  if (options.prefix.pages == 0) return;
  const int64_t page = geometry().options.page_tokens;
  const int64_t last = (sequence.prompt_tokens_ - 1) / page * page;
  for (const int64_t boundary : {std::min(opening.matched_tokens, last), last}) {
    const int64_t before = state.boundaries.empty() ? sequence.computed_ : state.boundaries.back();
    if (boundary > before) state.boundaries.push_back(boundary);
  }
}

// Writes the MTP rows of all computed positions whose next token is known. False when X of one of
// them has left the carry ring: without drafts nobody makes the rows of generated tokens.
bool Engine::Impl::CatchUpMtpRows(Sequence& sequence) {
  if (geometry().mtp_layers == 0) return true;
  Sequence::State& state = *sequence.state_;
  const int64_t end = std::min(sequence.computed_, std::ssize(sequence.tokens_) - 1);
  const auto missing = static_cast<size_t>(std::max<int64_t>(end - state.mtp_rows, 0));
  if (missing == 0) return true;
  if (state.forwarded - state.mtp_rows > geometry().carry_rows()) return false;
  const size_t width =
      static_cast<size_t>(geometry().streams) * static_cast<size_t>(geometry().hidden_size);
  std::vector<BFloat16> streams(missing * width);
  state.records->Gather({CacheStream::kMtpCarry, 0, {state.mtp_rows, end}},
                        std::as_writable_bytes(std::span(streams)));
  const MtpChunk chunk = {
      .next_tokens =
          std::span(sequence.tokens_).subspan(static_cast<size_t>(state.mtp_rows) + 1, missing),
      .streams = streams,
      .start = state.mtp_rows,
      .slot = state.slot,
      .wants_logits = false};
  model->ForwardMtp({&chunk, 1}, *storage);
  state.mtp_rows = end;
  return true;
}

// Positions [0, tokens), the newest that the sequence's rings know everything of.
void Engine::Impl::Keep(const Sequence& sequence, int64_t tokens) {
  const auto kept = std::span(sequence.tokens_).first(static_cast<size_t>(tokens));
  if (ledger.HasBoundary(kept)) return;
  const int64_t page = geometry().options.page_tokens;
  ledger.Keep(kept, sequence.state_->pages,
              StateSnapshot::Take(*sequence.state_->records, layout, tokens / page * page, tokens));
}

Engine::PrefixHint Engine::FindPrefix(const std::vector<int32_t>& prompt) const {
  const PrefixIndex::Match match = impl_->ledger.FindPrefix(prompt);
  const int64_t pages = std::ssize(match.pages) * geometry().options.page_tokens;
  return {.compute_from = match.resume_tokens(),
          .receive_from = std::max(match.resume_tokens(), pages)};
}

absl::Status Engine::CheckRoom(const std::vector<int32_t>& prompt, int64_t reserve_tokens,
                               PrefixUse use) const {
  const CacheUsage now = usage();
  const PrefixHint hint = FindPrefix(prompt);
  const int64_t shared = (use == PrefixUse::kCompute ? hint.compute_from : hint.receive_from) /
                         geometry().options.page_tokens;
  const int64_t wanted = geometry().PagesFor(reserve_tokens) - shared;
  if (now.slots_free > 0 && now.pages_available() >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(wanted, " cache pages and a slot wanted, ",
                                                   now.pages_available(), " and ", now.slots_free,
                                                   " can be had"));
}

void Engine::Retire(std::unique_ptr<Sequence> sequence) {
  const int64_t computed = sequence->computed_;
  if (impl_->options.prefix.pages == 0 || computed < sequence->prompt_tokens_) return;
  if (impl_->CatchUpMtpRows(*sequence)) {
    impl_->Keep(*sequence, computed);
  } else {
    impl_->ledger.Keep(std::span(sequence->tokens_).first(static_cast<size_t>(computed)),
                       sequence->state_->pages, nullptr);
  }
}

}  // namespace baton::engine
