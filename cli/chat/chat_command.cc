#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/api_key.h"
#include "cli/chat/line_reader.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/generation.h"
#include "cli/http_client.h"
#include "cli/interrupt.h"
#include "cli/json_dump.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

struct ChatOptions {
  std::string url = kDefaultUrl;
  std::string model;  // empty: what the server serves
  std::string api_key_file;
  std::string ca_file;
  std::string system;
  std::optional<double> temperature;
  std::optional<int> max_tokens;
  bool thinking = false;
  bool stats = false;
  bool json = false;
};

constexpr const char* kHelp =
    "/system TEXT  another system prompt, and a new conversation; without TEXT: none\n"
    "/reset        a new conversation\n"
    "/file PATH    put the text of a file in front of the next message\n"
    "/stats        after each answer say how fast it was and who served it, or no more\n"
    "/exit         end, as Ctrl-D does\n"
    "Ctrl-C ends an answer. A line that ends with \\ goes on in the next.\n";

constexpr std::chrono::milliseconds kShortestSpan{5};  // that has a speed

std::string Figures(const Generation& answer) {
  using Seconds = std::chrono::duration<double>;
  if (answer.arrivals.empty()) return "no text";
  const Seconds first = answer.arrivals.front().time - answer.sent;
  const Seconds span = answer.arrivals.back().time - answer.arrivals.front().time;
  const int64_t after_first = answer.completion_tokens - answer.arrivals.front().tokens;
  // What came in one read says nothing of how fast it was made.
  const std::string rate =
      span >= kShortestSpan ? absl::StrFormat("%.1f", after_first / span.count()) : "-";
  std::string text =
      absl::StrFormat("%s (%d cached), %s, first after %s, then %s tokens/s",
                      Counted(answer.prompt_tokens, "prompt token"), answer.cached_tokens,
                      Counted(answer.completion_tokens, "token"), HumanDuration(first), rate);
  const ServedBy& by = answer.served_by;
  if (by.decode_worker.empty()) return text;
  const auto called = [](const std::string& name, const std::string& address) {
    return HarmlessName(name.empty() ? address : name);
  };
  absl::StrAppend(&text, "; ", called(by.prefill_name, by.prefill_worker),
                  by.prefill_worker.empty() ? "" : " -> ", called(by.decode_name, by.decode_worker),
                  ", ", HumanBytes(static_cast<double>(by.handoff_bytes)), " handed over");
  return text;
}

class Chat {
 public:
  Chat(const ChatOptions& options, std::string model, HttpClient client)
      : options_(options),
        model_(std::move(model)),
        client_(std::move(client)),
        interactive_(IsTerminal(kStdin) && IsTerminal(kStdout) && !options.json),
        colour_(UsesColour(kStdout) && !options.json),
        system_(options.system),
        stats_(options.stats) {
    Reset();
  }

  absl::Status Run() {
    if (interactive_) {
      std::cout << Styled(absl::StrCat(Harmless(model_), " at ", client_.base().ToString(),
                                       "; /help lists what else can be typed\n"),
                          Style::kDim, colour_);
    }
    LineReader lines(kStdin);
    for (std::string message; ReadMessage(lines, &message);) {
      if (message.empty()) continue;
      if (message == "/exit" || message == "/quit") return absl::OkStatus();
      const absl::Status status = message[0] == '/' ? Command(message) : Answer(message);
      if (status.ok()) continue;
      if (!interactive_) return status;
      std::cout << Styled(Harmless(status.message()), Style::kRed, colour_) << std::endl;
    }
    if (interactive_) std::cout << std::endl;
    return absl::OkStatus();
  }

 private:
  void Reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // False at the end of the input.
  bool ReadMessage(LineReader& lines, std::string* message) {
    message->clear();
    while (true) {
      if (interactive_) {
        std::cout << Styled(message->empty() ? "> " : "| ", Style::kBold, colour_) << std::flush;
      }
      std::string line;
      const LineReader::Got got = lines.Next(&line);
      if (got == LineReader::Got::kEnd) return !message->empty();
      if (got == LineReader::Got::kInterrupted) {
        Interrupts::Reset();
        if (!interactive_) return false;
        std::cout << "\n";
        message->clear();
        continue;
      }
      const bool more = absl::EndsWith(line, "\\");
      if (more) line.back() = '\n';
      absl::StrAppend(message, line);
      if (!more) return true;
    }
  }

  absl::Status Command(absl::string_view line) {
    if (line == "/reset") {
      Reset();
    } else if (line == "/stats") {
      stats_ = !stats_;
    } else if (line == "/system" || absl::ConsumePrefix(&line, "/system ")) {
      system_ = line == "/system" ? "" : std::string(line);
      Reset();
    } else if (absl::ConsumePrefix(&line, "/file ")) {
      BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(std::string(line)));
      absl::StrAppend(&before_message_, text, "\n\n");
    } else if (line == "/help") {
      std::cerr << kHelp;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown: ", line, "; /help lists what is"));
    }
    return absl::OkStatus();
  }

  absl::Status Answer(const std::string& message) {
    const std::string files = std::exchange(before_message_, "");
    messages_.push_back({{"role", "user"}, {"content", files + message}});
    Json body = {{"model", model_}, {"messages", messages_}};
    if (options_.temperature) body["temperature"] = *options_.temperature;
    if (options_.max_tokens) body["max_tokens"] = *options_.max_tokens;
    if (options_.thinking) body["chat_template_kwargs"] = {{"thinking", true}};

    std::string text;  // what has come, also of an answer that is not completed
    bool thinking = false;
    Interrupts::Reset();
    const absl::StatusOr<Generation> answer =
        StreamGeneration(client_, "/v1/chat/completions", std::move(body),
                         [&](absl::string_view piece, bool reasoning) {
                           if (!reasoning) absl::StrAppend(&text, piece);
                           if (thinking && !reasoning) Show("\n", false);
                           thinking = reasoning;
                           Show(piece, reasoning);
                           return true;
                         });
    const bool cut = absl::IsCancelled(answer.status());
    if (!answer.ok() && !(cut && interactive_)) {
      if (!options_.json && !text.empty()) std::cout << std::endl;
      messages_.erase(messages_.size() - 1);  // as if it had not been asked
      before_message_ = files;
      return answer.status();
    }
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    if (options_.json) {
      ShowJson(*answer);
    } else {
      std::cout << (cut ? " ..." : "") << std::endl;
    }
    if (stats_ && answer.ok()) {
      std::cerr << Styled(Figures(*answer), Style::kDim, UsesColour(kStderr)) << std::endl;
    }
    return absl::OkStatus();
  }

  void Show(absl::string_view piece, bool reasoning) const {
    if (options_.json) return;
    const std::string text = IsTerminal(kStdout) ? Harmless(piece) : std::string(piece);
    std::cout << Styled(text, reasoning ? Style::kDim : Style::kPlain, colour_) << std::flush;
  }

  static void ShowJson(const Generation& answer) {
    const ServedBy& by = answer.served_by;
    const Json line = {{"content", answer.text},
                       {"reasoning", answer.reasoning},
                       {"finish_reason", answer.finish_reason},
                       {"prompt_tokens", answer.prompt_tokens},
                       {"cached_tokens", answer.cached_tokens},
                       {"completion_tokens", answer.completion_tokens},
                       {"prefill_worker", by.prefill_worker},
                       {"decode_worker", by.decode_worker},
                       {"prefill_name", by.prefill_name},
                       {"decode_name", by.decode_name},
                       {"handoff_bytes", by.handoff_bytes},
                       {"ttft_ms", by.ttft_ms}};
    std::cout << Dump(line) << std::endl;
  }

  const ChatOptions& options_;
  const std::string model_;
  HttpClient client_;
  const bool interactive_;
  const bool colour_;
  std::string system_;
  bool stats_;
  Json messages_;
  std::string before_message_;  // of files
};

absl::Status Run(const ChatOptions& options) {
  absl::StatusOr<Url> url = ParseUrl(options.url);
  if (!url.ok()) return UsageError(absl::StrCat("--url: ", url.status().message()));
  const Interrupts interrupts({SIGINT});
  BATON_ASSIGN_OR_RETURN(std::string authorization, Authorization(options.api_key_file));
  HttpClient client(*std::move(url), {.cancelled = Interrupts::Pending,
                                      .authorization = std::move(authorization),
                                      .ca_file = options.ca_file});
  std::string model = options.model;
  if (model.empty()) {
    BATON_ASSIGN_OR_RETURN(model, ServedModel(client));
  }
  return Chat(options, std::move(model), std::move(client)).Run();
}

}  // namespace

Command AddChat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand(
      "chat",
      "Talks with the model, turn by turn. What is piped in is one turn a line, and only answers "
      "come out.");
  AddOption(command, "--url", options->url, "of the router");
  command->add_option("--model", options->model, "by default the one that is served");
  AddApiKeyFile(command, options->api_key_file);
  AddCaFile(command, options->ca_file);
  command->add_option("--system", options->system, "system prompt");
  command->add_option("--temperature", options->temperature, "by default the model's own")
      ->check(InRange(0.0, 100.0));
  command->add_option("--max-tokens", options->max_tokens, "of an answer")
      ->check(InRange(1, 1 << 30));
  command->add_flag("--thinking", options->thinking, "let the model reason before it answers");
  command->add_flag("--stats", options->stats,
                    "after each answer say on stderr how fast it was and who served it");
  command->add_flag("--json", options->json, "one JSON object a turn instead of text");
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
