#include "engine/parallel/rendezvous.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/acceptor.h"
#include "common/status_macros.h"

namespace baton::engine {
namespace {

using Deadline = Socket::Clock::time_point;

// A caller that says nothing keeps others waiting no longer than this.
constexpr std::chrono::seconds kGreeting{2};
constexpr std::chrono::milliseconds kRetryPause{100};
constexpr const char* kSizeFact = "expert-parallel-size";
constexpr const char* kProtocolFact = "expert-parallel-protocol";
constexpr const char* kPassRowsFact = "expert-parallel-pass-rows";

absl::Status SendFrame(const Socket& socket, const Frame& frame) {
  std::vector<std::byte> bytes = EncodeHeader(frame, frame.payload.size());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return socket.Send(bytes);
}

absl::StatusOr<Frame> ReceiveFrame(Link& link, Deadline deadline) {
  std::byte bytes[4096];
  for (;;) {
    BATON_ASSIGN_OR_RETURN(std::optional<Frame> frame, link.reader.Next());
    if (frame) return *std::move(frame);
    BATON_ASSIGN_OR_RETURN(const size_t count, link.socket.Receive(bytes, deadline));
    link.reader.Append(std::span(bytes).first(count));
  }
}

// Size first: the ranks of another group differ in more.
Facts AllFacts(const RendezvousOptions& options) {
  Facts facts = {{kSizeFact, absl::StrCat(options.size)},
                 {kProtocolFact, absl::StrCat(kFrameProtocol)},
                 {kPassRowsFact, absl::StrCat(Wish::kMaxRows)}};
  facts.insert(facts.end(), options.facts.begin(), options.facts.end());
  return facts;
}

absl::Status Compare(const Facts& theirs, const Facts& ours) {
  for (const auto& [name, value] : ours) {
    const auto same_name = [&name = name](const auto& fact) { return fact.first == name; };
    const auto found = std::find_if(theirs.begin(), theirs.end(), same_name);
    const std::string other = found == theirs.end() ? "missing" : found->second;
    if (other != value) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " is ", other, ", and ", value, " at rank 0"));
    }
  }
  return absl::OkStatus();
}

class Host {
 public:
  Host(const RendezvousOptions& options, Deadline deadline)
      : options_(options), deadline_(deadline), facts_(AllFacts(options)) {}

  absl::StatusOr<std::vector<Link>> Run() {
    BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options_.address));
    BATON_ASSIGN_OR_RETURN(const Socket listener, Socket::Listen(address));
    while (std::ssize(links_) < options_.size - 1) {
      absl::StatusOr<Socket> socket = listener.Accept(deadline_);
      if (!socket.ok() && Socket::Clock::now() >= deadline_) return Missing();
      if (socket.ok()) {
        Greet(*std::move(socket));
      } else {
        // Such as no file descriptor left: may pass, but not at once.
        trouble_ = absl::StrCat("; ", socket.status().message());
        std::this_thread::sleep_for(kAcceptPause);
      }
    }
    std::sort(links_.begin(), links_.end(),
              [](const Link& a, const Link& b) { return a.rank < b.rank; });
    for (Link& link : links_) {
      link.reader.Trust();
      BATON_RETURN_IF_ERROR(SendFrame(link.socket, {.type = FrameType::kWelcome, .to = link.rank}))
          << "rank " << link.rank;
    }
    return std::move(links_);
  }

 private:
  void Greet(Socket socket) {
    Link link{.socket = std::move(socket)};
    const auto hello =
        ReceiveFrame(link, std::min<Deadline>(deadline_, Socket::Clock::now() + kGreeting));
    if (!hello.ok() || hello->type != FrameType::kHello) return;  // a scanner, or one that died
    link.rank = hello->from;
    const absl::Status status = Admit(link.rank, DecodeFacts(hello->payload));
    if (status.ok()) {
      links_.push_back(std::move(link));
      return;
    }
    trouble_ = absl::StrCat("; refused rank ", link.rank, ": ", status.message());
    SendFrame(link.socket,
              {.type = FrameType::kRefusal, .payload = EncodeText(std::string(status.message()))})
        .IgnoreError();
  }

  absl::Status Admit(int rank, const Facts& facts) {
    BATON_RETURN_IF_ERROR(Compare(facts, facts_));
    if (rank < 1 || rank >= options_.size) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " of ", options_.size, " cannot be"));
    }
    const auto same = std::find_if(links_.begin(), links_.end(),
                                   [rank](const Link& link) { return link.rank == rank; });
    if (same == links_.end()) return absl::OkStatus();
    if (!same->socket.Ended()) {
      return absl::FailedPreconditionError(absl::StrCat("there is a rank ", rank, " already"));
    }
    links_.erase(same);  // restarted while the others were awaited
    return absl::OkStatus();
  }

  absl::Status Missing() const {
    std::vector<int> missing;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (std::none_of(links_.begin(), links_.end(),
                       [rank](const Link& link) { return link.rank == rank; })) {
        missing.push_back(rank);
      }
    }
    return absl::DeadlineExceededError(
        absl::StrCat("of ", options_.size,
                     " ranks these did not come: ", absl::StrJoin(missing, ", "), trouble_));
  }

  const RendezvousOptions& options_;
  const Deadline deadline_;
  const Facts facts_;
  std::vector<Link> links_;
  std::string trouble_;  // the last, for who wonders why somebody is missing
};

absl::StatusOr<Link> Join(const RendezvousOptions& options, const HostPort& address,
                          Deadline deadline) {
  BATON_ASSIGN_OR_RETURN(Socket socket, Socket::Connect(address));
  Link link{.socket = std::move(socket)};
  BATON_RETURN_IF_ERROR(SendFrame(link.socket, {.type = FrameType::kHello,
                                                .from = options.rank,
                                                .payload = EncodeFacts(AllFacts(options))}));
  BATON_ASSIGN_OR_RETURN(const Frame answer, ReceiveFrame(link, deadline));
  if (answer.type == FrameType::kWelcome) {
    link.reader.Trust();
    return link;
  }
  return absl::FailedPreconditionError(answer.type == FrameType::kRefusal
                                           ? DecodeText(answer.payload)
                                           : "rank 0 does not answer a greeting");
}

absl::StatusOr<std::vector<Link>> JoinUntil(const RendezvousOptions& options, Deadline deadline) {
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.address));
  for (;;) {
    absl::StatusOr<Link> link = Join(options, address, deadline);
    if (link.ok()) {
      std::vector<Link> links;
      links.push_back(*std::move(link));
      return links;
    }
    // Rank 0 may not have started yet, or may be starting again.
    const bool late = Socket::Clock::now() + kRetryPause >= deadline;
    if (late && !absl::IsFailedPrecondition(link.status())) {
      return absl::DeadlineExceededError(absl::StrCat("rank 0: ", link.status().message()));
    }
    if (!absl::IsUnavailable(link.status())) return link.status();
    std::this_thread::sleep_for(kRetryPause);
  }
}

}  // namespace

absl::StatusOr<std::vector<Link>> Meet(const RendezvousOptions& options) {
  const Deadline deadline =
      Socket::Clock::now() + std::chrono::ceil<Socket::Clock::duration>(options.timeout);
  return options.rank == 0 ? Host(options, deadline).Run() : JoinUntil(options, deadline);
}

}  // namespace baton::engine
