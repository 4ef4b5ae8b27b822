//===- TeamLimit.h - threads that can be started --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libgomp ends the process when it cannot start a thread of a team: where an
// address space (ulimit -v), a number of processes (ulimit -u, pids.max) or the
// memory is at its end. So before a thread asks for a larger team than it had
// yet, as many threads as that takes are started here, all at once, and ended.
// With room for 5 of the 7 that a team of 8 needs, the team is one of 5: the
// caller and 4, the fifth being left over for what libgomp allocates itself.
//
// What is found is the calling thread's, whose team libgomp keeps for it. Room
// that others take between the trial and the team is not seen, nor that which
// has gone since a team of that size was there.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_TEAMLIMIT_H
#define STEPC_CPU_TEAMLIMIT_H

namespace stepc::cpu {

/// The threads of a team of at most `size`, the calling one among them, that
/// can be had: 1 to `size`. `tryAgain`: also where a trial has failed before.
int limitTeam(int size, bool tryAgain) noexcept;

} // namespace stepc::cpu

#endif // STEPC_CPU_TEAMLIMIT_H
