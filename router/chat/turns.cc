#include "router/chat/turns.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace baton::router {

std::vector<Turn> MergeTurns(std::span<const Message> messages) {
  std::vector<Turn> turns;
  for (const Message& message : messages) {
    const bool is_tool = message.role == Role::kTool;
    const bool is_user_turn = is_tool || message.role == Role::kUser;
    const bool extends = is_user_turn && !turns.empty() && turns.back().role == Role::kUser &&
                         (is_tool || !turns.back().task.has_value());
    if (!extends) {
      Turn& turn = turns.emplace_back();
      turn.role = is_user_turn ? Role::kUser : message.role;
      if (!is_tool) {
        turn.message = &message;
        turn.task = message.task;
      }
    }
    if (is_user_turn) {
      turns.back().blocks.push_back({.text = ContentText(message.content),
                                     .is_tool_result = is_tool,
                                     .tool_call_id = is_tool ? message.tool_call_id : ""});
    }
  }
  return turns;
}

void SortToolResults(std::vector<Turn>* turns) {
  absl::flat_hash_map<std::string, int> order;  // of the last assistant turn that made calls
  for (Turn& turn : *turns) {
    if (turn.role == Role::kAssistant && !turn.message->tool_calls.empty()) {
      order.clear();
      for (int i = 0; const ToolCall& call : turn.message->tool_calls) {
        if (!call.id.empty()) order[call.id] = i;
        ++i;
      }
    }
    std::vector<Turn::Block> results;
    for (const Turn::Block& block : turn.blocks) {
      if (block.is_tool_result) results.push_back(block);
    }
    const auto place = [&](const Turn::Block& block) {
      const auto it = order.find(block.tool_call_id);
      return it == order.end() ? 0 : it->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const auto& a, const auto& b) { return place(a) < place(b); });
    auto next = results.begin();
    for (Turn::Block& block : turn.blocks) {
      if (block.is_tool_result) block = std::move(*next++);
    }
  }
}

void DropEarlierDeveloperTurns(std::vector<Turn>* turns) {
  const int last_user = LastUserTurn(*turns);
  std::vector<Turn> kept;
  for (int i = 0; Turn & turn : *turns) {
    if (i++ >= last_user || turn.role != Role::kDeveloper) kept.push_back(std::move(turn));
  }
  *turns = std::move(kept);
}

int LastUserTurn(std::span<const Turn> turns) {
  for (int i = static_cast<int>(turns.size()) - 1; i >= 0; --i) {
    if (turns[i].role == Role::kUser || turns[i].role == Role::kDeveloper) return i;
  }
  return -1;
}

}  // namespace baton::router
