#include <algorithm>
#include <string>
#include <vector>

#include "tests/engine/cuda/cuda_test.h"
#include "tests/golden/golden_file.h"

// What a sequence computes does not depend, in any bit, on what else is in its batch, on how its
// rows are grouped into calls, or on the run.

namespace baton::engine {
namespace {

using golden::GoldenCase;

constexpr int kSequences = 16;
constexpr int kPageTokens = 256;
constexpr int kMaxTokens = 4600;

// Golden prompts from a page's length to a selection among 1,128 entries.
const std::vector<GoldenCase>& Cases() {
  static const auto* const cases = new std::vector<GoldenCase>([] {
    const std::string path = BATON_SOURCE_DIR "/tests/golden/needle-17m.safetensors";
    auto file = *golden::LoadGoldenFile(path, BothBackends::SharedCheckpoint().config().vocab_size);
    const auto long_ones = std::remove_if(file.cases.begin(), file.cases.end(), [](const auto& c) {
      return c.ids.size() < 257 || c.ids.size() + c.out.size() > kMaxTokens;
    });
    file.cases.erase(long_ones, file.cases.end());
    if (std::ssize(file.cases) > kSequences) file.cases.resize(kSequences);
    return file.cases;
  }());
  return *cases;
}

Model& DeterministicModel() {
  static Model* const model =
      BothBackends::Get("cuda")
          .LoadModel(BothBackends::SharedCheckpoint(), {.index_topk = 64, .deterministic = true})
          ->release();
  return *model;
}

// Logits after the prompt and after each token of the reference's answer.
using Answer = LogitsRows;

class BatchInvarianceTest : public ::testing::Test {
 protected:
  static constexpr int kPagesEach = (kMaxTokens + kPageTokens - 1) / kPageTokens;

  SequenceChunk Chunk(int index, std::span<const int32_t> tokens, int64_t start,
                      int64_t wanted) const {
    return {.tokens = tokens,
            .start = start,
            .pages = std::span(place_.pages).subspan(index * kPagesEach, kPagesEach),
            .slot = index,
            .first_logits_row = static_cast<int>(std::ssize(tokens) - wanted),
            .first_streams_row = static_cast<int>(std::ssize(tokens))};
  }
  LogitsRows Forward(const std::vector<SequenceChunk>& batch) {
    return SplitRows(model_.Forward(batch, *place_.cache).logits, model_.config().vocab_size);
  }

  // One sequence alone: `chunk` prompt tokens a call, then `step` tokens of the answer.
  Answer Alone(int index, int64_t chunk, int64_t step) {
    const GoldenCase& golden = Cases()[index];
    const auto prompt = std::ssize(golden.ids);
    Answer answer;
    for (int64_t done = 0; done < prompt; done += chunk) {
      const int64_t rows = std::min<int64_t>(chunk, prompt - done);
      const bool is_last = done + rows == prompt;
      const auto tokens = std::span(golden.ids).subspan(done, rows);
      const LogitsRows logits = Forward({Chunk(index, tokens, done, is_last ? 1 : 0)});
      answer.insert(answer.end(), logits.begin(), logits.end());
    }
    for (int64_t done = 0; done < std::ssize(golden.out); done += step) {
      const int64_t rows = std::min<int64_t>(step, std::ssize(golden.out) - done);
      const auto tokens = std::span(golden.out).subspan(done, rows);
      const LogitsRows logits = Forward({Chunk(index, tokens, prompt + done, rows)});
      answer.insert(answer.end(), logits.begin(), logits.end());
    }
    return answer;
  }

  // All of them in one batch, each call with a chunk of every prompt that is not over yet.
  std::vector<Answer> Together(int64_t chunk) {
    std::vector<Answer> answers(Cases().size());
    const auto forward = [&](int64_t done, bool answering) {
      std::vector<SequenceChunk> batch;
      std::vector<int> speaking;
      for (int i = 0; i < std::ssize(Cases()); ++i) {
        const GoldenCase& golden = Cases()[i];
        const auto prompt = std::ssize(golden.ids);
        const auto end = answering ? std::ssize(golden.out) : prompt;
        const int64_t rows = std::min<int64_t>(answering ? 1 : chunk, end - done);
        if (rows <= 0) continue;
        const bool speaks = answering || done + rows == prompt;
        const auto& ids = answering ? golden.out : golden.ids;
        batch.push_back(Chunk(i, std::span(ids).subspan(done, rows),
                              answering ? prompt + done : done, speaks ? 1 : 0));
        if (speaks) speaking.push_back(i);
      }
      if (batch.empty()) return false;
      const LogitsRows logits = Forward(batch);
      for (size_t i = 0; i < speaking.size(); ++i) answers[speaking[i]].push_back(logits[i]);
      return true;
    };
    for (int64_t done = 0; forward(done, false); done += chunk) {
    }
    for (int64_t done = 0; forward(done, true); ++done) {
    }
    return answers;
  }

  static void ExpectSame(const Answer& actual, const Answer& expected, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    int64_t different = 0;
    for (size_t row = 0; row < expected.size(); ++row) different += actual[row] != expected[row];
    EXPECT_EQ(different, 0) << what << ": rows that differ, of " << expected.size();
  }
  static std::string Name(int index) { return Cases()[index].name; }

  Model& model_ = DeterministicModel();
  Place place_{"cuda",
               {.page_tokens = kPageTokens, .pages = kSequences * kPagesEach, .slots = kSequences}};
};

TEST_F(BatchInvarianceTest, RunsDoNotDiffer) {
  for (const int i : {0, 9}) ExpectSame(Alone(i, 1000, 1), Alone(i, 1000, 1), Name(i));
}

TEST_F(BatchInvarianceTest, SequencesAloneAndTogetherHaveTheSameBits) {
  for (const int64_t chunk : {kMaxTokens, 200}) {
    const std::vector<Answer> together = Together(chunk);
    for (int i = 0; i < std::ssize(Cases()); ++i) {
      ExpectSame(together[i], Alone(i, kMaxTokens, 1),
                 Name(i) + " of chunks " + std::to_string(chunk));
    }
  }
}

TEST_F(BatchInvarianceTest, ChunksOfAnySizeHaveTheSameBits) {
  for (const int i : {0, 2, 12}) {
    const Answer whole = Alone(i, 4096, 1);
    for (const int64_t chunk : {1024, 300, 97, 64, 33, 7}) {
      ExpectSame(Alone(i, chunk, 1), whole, Name(i) + " in chunks of " + std::to_string(chunk));
    }
  }
}

TEST_F(BatchInvarianceTest, DraftsDoNotChangeBits) {
  for (const int i : {0, 2, 12}) {
    const Answer single = Alone(i, 4096, 1);
    for (const int64_t rows : {2, 3, 5}) {
      ExpectSame(Alone(i, 4096, rows), single, Name(i) + ", rows a step " + std::to_string(rows));
    }
  }
}

// Rows of a layer that attends all of its entries are in several parts from 512 entries on, which
// are 65,536 tokens; a selection, however large, is one part.
TEST_F(BatchInvarianceTest, RowsOfSeveralPartsHaveTheSameBits) {
  constexpr int64_t kPrompt = 66'000;
  constexpr int64_t kRows = 12;
  constexpr int64_t kPages = (kPrompt + kRows + kPageTokens - 1) / kPageTokens;
  const std::span<const int32_t> pages(place_.pages);
  const std::span<const int32_t> company_ids(Cases()[0].ids);
  ASSERT_LE(kPages + 2, std::ssize(pages));
  std::vector<int32_t> ids;
  while (std::ssize(ids) < kPrompt + kRows) {
    const GoldenCase& golden = Cases()[std::ssize(ids) % std::ssize(Cases())];
    ids.insert(ids.end(), golden.ids.begin(), golden.ids.end());
  }
  const auto chunk = [&](int64_t start, int64_t rows, int64_t wanted) {
    return SequenceChunk{.tokens = std::span(ids).subspan(start, rows),
                         .start = start,
                         .pages = pages.first(kPages),
                         .slot = 0,
                         .first_logits_row = static_cast<int>(rows - wanted),
                         .first_streams_row = static_cast<int>(rows)};
  };
  const auto prefill = [&](int64_t tokens, int64_t rows) {
    for (int64_t done = 0; done < tokens; done += rows) {
      Forward({chunk(done, std::min(rows, tokens - done), 0)});
    }
  };
  Answer steps;
  prefill(kPrompt, 4096);
  for (int64_t i = 0; i < kRows; ++i) steps.push_back(Forward({chunk(kPrompt + i, 1, 1)})[0]);

  // The same rows as the end of a chunk, beside another sequence.
  constexpr int64_t kBefore = kPrompt - 200;
  prefill(kBefore, 3000);
  constexpr int64_t kCompany = 257;
  const SequenceChunk company{.tokens = company_ids.first(kCompany),
                              .pages = pages.subspan(kPages, 2),
                              .slot = 1,
                              .first_logits_row = kCompany,
                              .first_streams_row = kCompany};
  const Answer together = Forward({company, chunk(kBefore, 200 + kRows, kRows)});
  ExpectSame(together, steps, "rows at 66,000");
}

}  // namespace
}  // namespace baton::engine
