#include "cli/needle/subject.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/generation.h"
#include "cli/http_client.h"
#include "cli/interrupt.h"
#include "common/status_macros.h"
#include "router/chat/renderer.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

class Endpoint final : public Subject {
 public:
  Endpoint(HttpClient client, std::string model, const AskOptions& options)
      : client_(std::move(client)), model_(std::move(model)), options_(options) {}

  absl::StatusOr<Reply> Ask(const Messages& messages, const Conversation&) override {
    Json list = Json::array();
    for (size_t i = 0; i < messages.size(); ++i) {
      list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", messages[i]}});
    }
    const auto begin = Clock::now();
    BATON_ASSIGN_OR_RETURN(Generation generation,
                           StreamGeneration(client_, "/v1/chat/completions",
                                            {{"model", model_},
                                             {"messages", std::move(list)},
                                             {"temperature", 0},
                                             {"max_tokens", options_.max_tokens}}));
    return Reply{.text = std::move(generation.text),
                 .prompt_tokens = generation.prompt_tokens,
                 .handoff_bytes = generation.served_by.handoff_bytes,
                 .seconds = std::chrono::duration<double>(Clock::now() - begin).count(),
                 .report = {}};
  }

 private:
  HttpClient client_;
  const std::string model_;
  const AskOptions options_;
};

class StartedCluster final : public Subject {
 public:
  StartedCluster(std::unique_ptr<Cluster> cluster, std::unique_ptr<Subject> endpoint)
      : cluster_(std::move(cluster)), endpoint_(std::move(endpoint)) {}

  absl::StatusOr<Reply> Ask(const Messages& messages, const Conversation& conversation) override {
    return endpoint_->Ask(messages, conversation);
  }
  absl::Status Stop() override { return cluster_->Stop(); }

 private:
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Subject> endpoint_;
};

// Of an engine, which may be another build.
absl::StatusOr<std::vector<int32_t>> TokensOf(const Json& report) try {
  return report.at("tokens").get<std::vector<int32_t>>();
} catch (const Json::exception& error) {
  return absl::DataLossError(absl::StrCat("the engine's answer has no tokens: ", error.what()));
}

class Engine final : public Subject {
 public:
  Engine(std::unique_ptr<RecallProcess> process, const router::Tokenizer& tokenizer,
         const AskOptions& options)
      : process_(std::move(process)), tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<Reply> Ask(const Messages& messages, const Conversation& conversation) override {
    std::vector<router::Message> list;
    for (size_t i = 0; i < messages.size(); ++i) {
      list.push_back(router::TextMessage(
          i % 2 == 0 ? router::Role::kUser : router::Role::kAssistant, messages[i]));
    }
    BATON_ASSIGN_OR_RETURN(const std::vector<router::TextSegment> prompt,
                           router::RenderPrompt(list, router::ChatPrompts{}, {}));
    const std::vector<int32_t> ids = tokenizer_.Encode(prompt);
    const auto begin = Clock::now();
    BATON_ASSIGN_OR_RETURN(
        Json report,
        process_->Ask({{"prompt", ids},
                       {"needle", {conversation.answer_begin, conversation.answer_end}},
                       {"max_tokens", options_.max_tokens},
                       {"explain", options_.explain}}));
    BATON_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, TokensOf(report));
    return Reply{.text = tokenizer_.Decode(tokens, /*skip_special=*/true),
                 .prompt_tokens = std::ssize(ids),
                 .handoff_bytes = 0,
                 .seconds = std::chrono::duration<double>(Clock::now() - begin).count(),
                 .report = std::move(report)};
  }

 private:
  std::unique_ptr<RecallProcess> process_;
  const router::Tokenizer& tokenizer_;
  const AskOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> EndpointSubject(const std::string& url, std::string model,
                                                         const AskOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Url parsed, ParseUrl(url));
  HttpClient client(parsed, {.cancelled = Interrupts::Pending,
                             .authorization = options.authorization,
                             .ca_file = options.ca_file});
  if (model.empty()) {
    BATON_ASSIGN_OR_RETURN(model, ServedModel(client));
  }
  return std::make_unique<Endpoint>(std::move(client), std::move(model), options);
}

absl::StatusOr<std::unique_ptr<Subject>> ClusterSubject(const ClusterOptions& cluster,
                                                        const AskOptions& options,
                                                        const std::function<bool()>& cancelled) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Cluster> started, Cluster::Start(cluster, cancelled));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Subject> endpoint,
                         EndpointSubject(started->url(), "", options));
  return std::make_unique<StartedCluster>(std::move(started), std::move(endpoint));
}

absl::StatusOr<std::unique_ptr<Subject>> EngineSubject(const std::filesystem::path& binary,
                                                       const std::vector<std::string>& flags,
                                                       const router::Tokenizer& tokenizer,
                                                       const AskOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<RecallProcess> process,
                         RecallProcess::Start(binary, flags));
  return std::make_unique<Engine>(std::move(process), tokenizer, options);
}

}  // namespace baton::cli
