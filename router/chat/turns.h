#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "router/chat/message.h"

namespace baton::router {

// A message as it is rendered: tool results have become blocks of user turns.
struct Turn {
  struct Block {
    std::string text;
    bool is_tool_result = false;
    std::string tool_call_id;
  };

  const Message* message = nullptr;  // null for a user turn that only holds tool results
  Role role = Role::kUser;
  std::vector<Block> blocks;  // user turns
  std::optional<Task> task;
};

// Consecutive tool and user messages become one user turn; a user turn with a task takes in no
// later user message. `messages` must outlive the result.
std::vector<Turn> MergeTurns(std::span<const Message> messages);

// Puts the tool results of each user turn into the order in which the assistant made the calls;
// results of unknown calls count as the first's. Text blocks keep their places.
void SortToolResults(std::vector<Turn>* turns);

// Removes the developer turns before the last user turn.
void DropEarlierDeveloperTurns(std::vector<Turn>* turns);

// Index of the last user or developer turn, -1 without one.
int LastUserTurn(std::span<const Turn> turns);

}  // namespace baton::router
