#pragma once

#include <map>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"

namespace baton::kvtransfer {

// Prints what benchmark prints, and at the end the goals of hand-offs beside what was reached:
//   grpc     >= 85 % of a raw gRPC byte stream that is copied out
//   shm      >= 50 % of a cold memcpy from 16 MiB up
//   a prompt <= 1.25 x its bytes / ceiling + 1 ms, where the ceiling is what the same transport
//               makes of 64 MiB in one piece
// by the clock, beside the same of the CPU time of all threads; medians where there are
// repetitions.
class GoalsReporter final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  struct Cost {  // ms
    double clock = 0;
    double cpu = 0;
  };
  // Median of the runs of `name`, e.g. "BM_Memcpy/16777216"; none: not run.
  const Cost* Find(const std::string& name);
  void PrintRatio(const std::string& transport, const std::string& ceiling, int64_t bytes,
                  double goal);
  void PrintPrompt(const std::string& transport, int64_t tokens);

  std::map<std::string, std::vector<Cost>> runs_;
  std::map<std::string, Cost> medians_;
  std::map<std::string, double> bytes_;  // an iteration moves
};

}  // namespace baton::kvtransfer
