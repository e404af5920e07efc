#pragma once

#include <memory>

#include "kvtransfer/record_mover.h"

namespace baton::kvtransfer {

// Of memory of the current device, on a stream of its own. Linked where CUDA is.
std::unique_ptr<RecordMover> MakeDeviceMover();

}  // namespace baton::kvtransfer
