#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"

namespace baton::engine {

// One step, in the order of its methods. Drafting comes first and reads X of the last computed
// positions from the carry ring, so a sequence that was handed over a moment ago, one that has just
// finished its prompt here and one whose drafts were all rejected are no different.
class Engine::StepRun {
 public:
  StepRun(Impl& engine, std::span<const StepItem> items);

  void Draft();
  void Forward();
  std::vector<StepOutput> Take();
  void WritePromptMtpRows();
  void KeepBoundaries();

 private:
  struct Work {
    Sequence* sequence = nullptr;
    SequenceLimits limits;
    bool decodes = false;
    bool samples = false;           // gets tokens in this step
    int64_t start = 0;              // first position computed
    int64_t known = 0;              // tokens of the sequence before the step
    std::vector<int32_t> computes;  // tokens of [start, ...): known ones, then drafts
    int64_t drafts_wanted = 0;
    std::vector<BFloat16> streams;      // input of the next MTP call
    std::vector<RowSampling> sampling;  // of the rows whose token is wanted
    std::vector<std::vector<kernels::LogitAdjustment>> adjustments;  // of those that have any

    // Of a prompt only those rows get MTP rows that its first generated token attends, or that of a
    // sequence which begins at the next boundary: the window before it. The first of them among
    // those computed; == computes.size() if there are none.
    int FirstPromptMtpRow() const {
      const std::ptrdiff_t rows = std::ssize(computes);
      if (decodes) return static_cast<int>(rows);
      const std::vector<int64_t>& boundaries = sequence->state_->boundaries;
      const int64_t end = boundaries.empty() ? limits.prompt_tokens : boundaries.front();
      return static_cast<int>(std::clamp<int64_t>(end - ModelConfig::kWindow - start, 0, rows));
    }
    std::span<const int32_t> drafts() const {
      return decodes ? std::span(computes).subspan(1) : std::span<const int32_t>();
    }
  };

  Work Plan(const StepItem& item) const;
  MtpChunk FirstDraftChunk(Work& work) const;
  MtpChunk NextDraftChunk(Work& work) const;
  void TakeDraft(Work& work, int32_t draft);

  size_t stream_width() const {
    return static_cast<size_t>(engine_.geometry().streams) *
           static_cast<size_t>(engine_.geometry().hidden_size);
  }
  // Rows behind `position` - 1, each for the token at the position after it. Drafts before that
  // position count as generated: where a row's token is taken, all of them were accepted.
  static std::span<const RowSampling> SampleFrom(Work& work, int64_t position, size_t rows);

  Impl& engine_;
  std::vector<Work> work_;
  ForwardResult result_;
};

Engine::StepRun::StepRun(Impl& engine, std::span<const StepItem> items) : engine_(engine) {
  work_.reserve(items.size());
  for (const StepItem& item : items) {
    for (const Work& other : work_)
      BATON_CHECK(other.sequence != item.sequence) << "twice in a step";
    work_.push_back(Plan(item));
  }
}

Engine::StepRun::Work Engine::StepRun::Plan(const StepItem& item) const {
  Sequence& sequence = *item.sequence;
  Work work;
  work.sequence = &sequence;
  work.limits = engine_.LimitsOf(sequence.prompt_tokens_);
  work.decodes = item.tokens == 0;
  work.start = sequence.computed_;
  work.known = std::ssize(sequence.tokens_);
  const int64_t max_tokens = work.limits.MaxTokens(sequence.sampling_);
  BATON_CHECK(work.known < max_tokens) << "a finished sequence of " << work.known << " tokens";
  int64_t count = item.tokens;
  if (work.decodes) {
    BATON_CHECK(work.start >= sequence.prompt_tokens_ && work.start == work.known - 1)
        << "decoding with " << work.start << " of " << work.known << " positions computed";
    count = 1;
    work.drafts_wanted = engine_.DraftsFor(work.known, max_tokens);
  }
  const int64_t end = work.start + count;
  BATON_CHECK(count > 0 && end <= (work.decodes ? work.known : sequence.prompt_tokens_))
      << "a chunk of " << count << " from " << work.start << " of " << sequence.prompt_tokens_;
  BATON_CHECK(end + work.drafts_wanted <= sequence.reserved_tokens())
      << end + work.drafts_wanted << " positions, " << sequence.reserved_tokens() << " reserved";
  work.samples = end == work.known;
  if (work.samples && sequence.adjustments_) sequence.adjustments_->Follow(sequence.tokens_);
  work.computes.assign(sequence.tokens_.begin() + work.start, sequence.tokens_.begin() + end);
  return work;
}

// Rows whose token t + 1 has become known since the last call; the last of them predicts the token
// after the newest.
MtpChunk Engine::StepRun::FirstDraftChunk(Work& work) const {
  Sequence::State& state = *work.sequence->state_;
  const int64_t missing = work.start - state.mtp_rows;
  BATON_CHECK(missing <= engine_.geometry().carry_rows())
      << missing << " MTP rows are missing, " << engine_.geometry().carry_rows() << " are carried";
  const auto first = static_cast<size_t>(state.mtp_rows);
  state.mtp_rows = work.start;
  return {.next_tokens = std::span(work.sequence->tokens_)
                             .subspan(first + 1, static_cast<size_t>(work.start) - first),
          .streams = {},  // the carry's
          .start = static_cast<int64_t>(first),
          .slot = state.slot,
          .wants_logits = true};
}

// A further draft takes the block's own output for X. Its row is written again, from the real X,
// once the position has been computed: until then mtp_rows does not cover it.
MtpChunk Engine::StepRun::NextDraftChunk(Work& work) const {
  return {.next_tokens = std::span(work.computes).last(1),
          .streams = work.streams,
          .start = work.start + std::ssize(work.computes) - 2,
          .slot = work.sequence->state_->slot,
          .wants_logits = true};
}

std::span<const RowSampling> Engine::StepRun::SampleFrom(Work& work, int64_t position,
                                                         size_t rows) {
  std::optional<SequenceAdjustments>& adjustments = work.sequence->adjustments_;
  work.sampling.clear();
  work.adjustments.clear();
  for (const int64_t end = position + static_cast<int64_t>(rows); position < end; ++position) {
    RowSampling& row =
        work.sampling.emplace_back(work.limits.SamplingAt(position, work.sequence->sampling_));
    const int64_t drafts_before = position - work.known;
    if (!adjustments || drafts_before < 0) continue;  // nobody asks for a token that is known
    row.adjustments = work.adjustments.emplace_back(
        adjustments->After(work.drafts().first(static_cast<size_t>(drafts_before))));
  }
  return work.sampling;
}

void Engine::StepRun::TakeDraft(Work& work, int32_t draft) {
  work.computes.push_back(draft);
  if (EndsSequence(draft, work.sequence->sampling_, work.limits.eos_token_id)) {
    work.drafts_wanted = std::ssize(work.drafts());
  }
}

void Engine::StepRun::Draft() {
  for (int64_t round = 0;; ++round) {
    std::vector<Work*> drafting;
    std::vector<MtpChunk> batch;
    for (Work& work : work_) {
      if (work.drafts_wanted <= round) continue;
      drafting.push_back(&work);
      MtpChunk& chunk =
          batch.emplace_back(round == 0 ? FirstDraftChunk(work) : NextDraftChunk(work));
      // Chosen as the trunk's token will be, by the same random number: that makes it the more
      // likely to be the same. Row t predicts token t + 2.
      chunk.sampling = SampleFrom(work, chunk.start + 2, chunk.next_tokens.size());
      chunk.wants_streams = work.drafts_wanted > round + 1;
    }
    if (batch.empty()) return;
    const ForwardResult result = engine_.model->ForwardMtp(batch, *engine_.storage);
    size_t end = 0;  // rows up to and including those of the chunk
    size_t streams_end = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      end += batch[i].next_tokens.size();
      TakeDraft(*drafting[i], result.tokens[end - 1]);
      if (!batch[i].wants_streams) continue;
      streams_end += batch[i].next_tokens.size();
      const auto streams =
          result.streams.subspan((streams_end - 1) * stream_width(), stream_width());
      drafting[i]->streams.assign(streams.begin(), streams.end());
    }
  }
}

void Engine::StepRun::Forward() {
  std::vector<SequenceChunk> batch;
  batch.reserve(work_.size());
  for (Work& work : work_) {
    const auto rows = static_cast<int>(work.computes.size());
    const size_t sampled = work.samples ? work.drafts().size() + 1 : 0;
    SampleFrom(work, work.known, sampled);
    for (RowSampling& row : work.sampling) {
      row.top_logprobs = work.sequence->sampling_.top_logprobs;
    }
    Sequence::State& state = *work.sequence->state_;
    state.forwarded = work.start + rows;
    batch.push_back({.tokens = work.computes,
                     .start = work.start,
                     .pages = state.pages.ids(),
                     .slot = state.slot,
                     .first_logits_row = rows - static_cast<int>(sampled),
                     .first_streams_row = work.FirstPromptMtpRow(),
                     .sampling = work.sampling});
  }
  result_ = engine_.model->Forward(batch, *engine_.storage);
}

std::vector<StepOutput> Engine::StepRun::Take() {
  std::vector<StepOutput> outputs;
  outputs.reserve(work_.size());
  size_t row = 0;
  size_t asking_row = 0;  // of result_.logprobs
  for (const Work& work : work_) {
    Sequence& sequence = *work.sequence;
    StepOutput& output = outputs.emplace_back();
    output.sequence = &sequence;
    if (work.samples) {
      const size_t rows = work.drafts().size() + 1;
      Verified verified = VerifyDrafts({.sampled = result_.tokens.subspan(row, rows),
                                        .drafts = work.drafts(),
                                        .tokens = work.known},
                                       sequence.sampling_, work.limits);
      row += rows;
      output.new_tokens = std::move(verified.new_tokens);
      if (sequence.sampling_.top_logprobs) {
        const auto logprobs = result_.logprobs.subspan(asking_row, output.new_tokens.size());
        output.logprobs.assign(logprobs.begin(), logprobs.end());
        asking_row += rows;
      }
      output.finish = verified.finish;
      output.drafted = static_cast<int32_t>(rows) - 1;
      output.accepted = verified.accepted;
    }
    sequence.tokens_.insert(sequence.tokens_.end(), output.new_tokens.begin(),
                            output.new_tokens.end());
    // Rows of rejected drafts lie beyond and are written again.
    sequence.computed_ += work.decodes ? std::ssize(output.new_tokens) : std::ssize(work.computes);
  }
  return outputs;
}

// The last row of a prompt waits for the first generated token and is made from the carry, here or
// on the worker that takes over.
void Engine::StepRun::WritePromptMtpRows() {
  if (engine_.geometry().mtp_layers == 0) return;
  std::vector<MtpChunk> batch;
  size_t row = 0;  // of result_.streams
  for (const Work& work : work_) {
    const int first = work.FirstPromptMtpRow();
    const auto streams = result_.streams.subspan(row * stream_width());
    row += work.computes.size() - static_cast<size_t>(first);
    if (work.decodes) continue;
    Sequence::State& state = *work.sequence->state_;
    const int64_t begin = work.start + first;
    const int64_t end =
        std::min(work.start + std::ssize(work.computes), work.sequence->prompt_tokens_ - 1);
    state.mtp_rows = end;
    if (begin >= end) continue;
    const auto rows = static_cast<size_t>(end - begin);
    batch.push_back(
        {.next_tokens =
             std::span(work.sequence->tokens_).subspan(static_cast<size_t>(begin + 1), rows),
         .streams = streams.first(rows * stream_width()),
         .start = begin,
         .slot = state.slot,
         .wants_logits = false});
  }
  if (!batch.empty()) engine_.model->ForwardMtp(batch, *engine_.storage);
}

void Engine::StepRun::KeepBoundaries() {
  for (const Work& work : work_) {
    std::vector<int64_t>& boundaries = work.sequence->state_->boundaries;
    if (boundaries.empty() || boundaries.front() != work.sequence->computed_) continue;
    engine_.Keep(*work.sequence, boundaries.front());
    boundaries.erase(boundaries.begin());
  }
}

// A chunk that crosses a boundary is computed in two parts: its state is only there in between.
std::vector<StepOutput> Engine::Step(std::span<const StepItem> items) {
  if (items.empty()) return {};
  std::vector<StepItem> before;
  std::vector<StepItem> rest(items.begin(), items.end());
  for (StepItem& item : rest) {
    const std::vector<int64_t>& boundaries = item.sequence->state_->boundaries;
    const int64_t computed = item.sequence->computed_;
    if (boundaries.empty() || boundaries.front() >= computed + item.tokens) continue;
    before.push_back({item.sequence, static_cast<int32_t>(boundaries.front() - computed)});
    item.tokens -= before.back().tokens;
  }
  if (!before.empty()) {
    Step(before);  // of prompts that go on: nothing is sampled
    return Step(rest);
  }
  StepRun run(*impl_, items);
  run.Draft();
  run.Forward();
  std::vector<StepOutput> outputs = run.Take();
  run.WritePromptMtpRows();
  run.KeepBoundaries();
  return outputs;
}

}  // namespace baton::engine
