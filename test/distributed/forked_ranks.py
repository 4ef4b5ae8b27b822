# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a file of cases on ranks: ``forked_ranks.py FILE FOLDER WORLD``.

As torchrun does, but that the ranks meet in a file of the folder, and are forked from a process
that has imported torch: to do that takes longer than most files of cases. The first rank that
fails ends the others, and its status is that of the whole.
"""

import gc
import os
import runpy
import signal
import sys
import time
import traceback

import stepc.torch  # noqa: F401
import torch.distributed.checkpoint
import torch.distributed.tensor  # noqa: F401

_GRACE = 5.0  # seconds in which others may say what they have seen


def run_rank(file, folder, rank, world):
    """A rank: it ends by itself, in on_ranks.main()."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    sys.argv = [file, folder]
    runpy.run_path(file, run_name="__main__")


def wait_for(children):
    """The status of the first that fails, 0 where none does."""
    status, end = 0, None
    while children:
        pid, ended = os.waitpid(-1, os.WNOHANG)
        if pid:
            children.remove(pid)
            status = status or os.waitstatus_to_exitcode(ended)
        else:
            time.sleep(0.01)
        if status and end is None:
            end = time.monotonic() + _GRACE
        if end is not None and time.monotonic() > end:
            for child in children:
                os.kill(child, signal.SIGKILL)
    return status


def main():
    file, folder, world = sys.argv[1], sys.argv[2], int(sys.argv[3])
    children = set()
    gc.freeze()  # what was imported stays: no rank need look through it again and again
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            try:
                run_rank(file, folder, rank, world)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)  # where it has not ended by itself
        children.add(pid)
    sys.exit(1 if wait_for(children) else 0)


if __name__ == "__main__":
    main()
