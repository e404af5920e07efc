#include <csignal>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "cli/top/fleet.h"
#include "cli/top/fleet_view.h"
#include "cli/top/key_presses.h"
#include "cli/top/scraper.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWindow = std::chrono::seconds(60);  // of percentiles in the live view

struct TopOptions {
  std::vector<std::string> metrics;  // empty: kDefaultMetricsListen
  double interval_s = 1;
  bool once = false;
  bool json = false;
  rpc::ClusterTls tls;
};

// False when it was cut short by Ctrl-C, or by 'q' among `keys`.
bool Sleep(std::chrono::duration<double> time, KeyPresses* keys = nullptr) {
  const auto end = Clock::now() + time;
  const auto enough = [keys] {
    return Interrupts::Pending() || (keys != nullptr && keys->Pressed('q'));
  };
  while (!enough()) {
    if (Clock::now() >= end) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// The readings of the last minute; the oldest begins the window of the percentiles.
class History {
 public:
  FleetFigures Add(Reading reading) {
    while (readings_.size() > 1 && reading.time - readings_[1].time >= kWindow) {
      readings_.pop_front();
    }
    readings_.push_back(std::move(reading));
    const bool first = readings_.size() == 1;
    return Figures(first ? nullptr : &readings_.front(),
                   first ? nullptr : &readings_[readings_.size() - 2], readings_.back());
  }

 private:
  std::deque<Reading> readings_;
};

absl::Status Once(Scraper& scraper, const TopOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Reading before, scraper.Read());
  if (!Sleep(std::chrono::duration<double>(options.interval_s))) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const Reading now, scraper.Read());
  const FleetFigures fleet = Figures(nullptr, &before, now);
  std::cout << (options.json ? FleetJson(fleet) + "\n" : FleetText(fleet, UsesColour(kStdout)))
            << std::flush;
  return AnyWorkerAnswered(fleet);
}

// On a screen of its own if there are `keys`, else one look after another.
absl::Status Live(Scraper& scraper, const TopOptions& options, KeyPresses* keys) {
  History history;
  const bool screen = keys != nullptr;
  do {
    const absl::StatusOr<Reading> reading = scraper.Read();
    if (!reading.ok() && !screen) return reading.status();
    // Home, then what is old is cleared line by line and below: no flicker.
    if (screen) std::cout << "\033[H";
    std::string text = reading.ok() ? "" : absl::StrCat(reading.status().message(), "\n");
    if (reading.ok()) {
      const FleetFigures fleet = history.Add(*reading);
      text = options.json ? FleetJson(fleet) + "\n" : FleetText(fleet, UsesColour(kStdout));
    }
    if (screen) {
      absl::StrAppend(&text, "\n",
                      Styled(keys->possible() ? "q or Ctrl-C ends" : "Ctrl-C ends", Style::kDim,
                             UsesColour(kStdout)));
    }
    for (const char c : text) {
      if (c == '\n' && screen) std::cout << "\033[K";
      std::cout << c;
    }
    if (screen) std::cout << "\033[J";
    std::cout << std::flush;
  } while (Sleep(std::chrono::duration<double>(options.interval_s), keys));
  return absl::OkStatus();
}

absl::Status Run(const TopOptions& options) {
  const std::vector<std::string> addresses =
      options.metrics.empty() ? std::vector<std::string>{kDefaultMetricsListen} : options.metrics;
  for (const std::string& address : addresses) {
    const absl::Status status = ParseHostPort(address).status();
    if (!status.ok()) return UsageError(absl::StrCat("--metrics: ", status.message()));
  }
  BATON_ASSIGN_OR_RETURN(const rpc::Credentials credentials, rpc::LoadCredentials(options.tls));
  const Interrupts interrupts({SIGINT, SIGTERM});
  Scraper scraper(addresses, credentials);
  if (options.once) return Once(scraper, options);
  if (!IsTerminal(kStdout) || options.json) return Live(scraper, options, nullptr);
  KeyPresses keys;
  std::cout << "\033[?1049h\033[?25l\033[?7l";  // own screen, no cursor, no wrapping
  const absl::Status status = Live(scraper, options, &keys);
  std::cout << "\033[?7h\033[?25h\033[?1049l" << std::flush;
  return status;
}

}  // namespace

Command AddTop(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand("top",
                                         "Shows what a fleet does until q or Ctrl-C: requests, "
                                         "tokens, latencies, cache pages, hand-offs.");
  AddList(command, "--metrics", options->metrics,
          absl::StrCat("host:port of the metrics of a router, which names its workers, or of a "
                       "worker; may be repeated [default ",
                       kDefaultMetricsListen, "]"));
  AddClusterTls(command, options->tls);
  AddOption(command, "--interval", options->interval_s, "seconds between two looks, from 0.1")
      ->check(InRange(0.1, 3600.0));
  command->add_flag("--once", options->once,
                    "look twice, one interval apart, and end; percentiles since the start");
  command->add_flag("--json", options->json, "one JSON object a look");
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
