#pragma once

namespace baton::rpc {

// Keeps what messages have been in for the next ones. By itself glibc gives the end of a heap back
// to the system as soon as a few hundred KiB of it are free, and with each message of a stream asks
// for it again, whose every page the kernel then clears first: that takes longer than all else that
// is done to a frame. From now on each heap of the process keeps up to 32 MiB, and there are no
// more than 32 of them: 1 GiB that nobody uses at most, on any machine, where 64 cores would have
// 512. What MALLOC_... in the environment says of this does not count. Any number of times; the
// first one before there are many threads, for that is when glibc decides on the number.
void KeepMessageMemory();

}  // namespace baton::rpc
