#pragma once

#include <vector>

#include "nlohmann/json.hpp"
#include "router/chat/message.h"

namespace baton::router::testing {

// Messages from an OpenAI-style list with this format's extra fields (task, wo_eos, tools on a
// message). For test data that is known to be well-formed: throws on anything else.
std::vector<Message> MessagesFromJson(const nlohmann::ordered_json& list);

}  // namespace baton::router::testing
