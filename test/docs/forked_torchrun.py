# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stands for torchrun: ``forked_torchrun.py --nproc-per-node=N SCRIPT ARGUMENT...``

Ranks are forked from a process that has imported torch, which takes each of torchrun's, and
torchrun itself, longer than the scripts of the tutorials.
"""

import gc
import os
import runpy
import socket
import sys

import stepc.torch  # noqa: F401
import torch.distributed
import torch.distributed.fsdp


def run_rank(rank, world, port, script, arguments):
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def main():
    name, _, count = sys.argv[1].partition("=")
    assert name == "--nproc-per-node", name
    script, world = sys.argv[2], int(count)
    door = socket.create_server(("localhost", 0))
    port, children = door.getsockname()[1], []
    gc.freeze()  # what was imported stays: no rank need look through it again and again
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            door.close()
            run_rank(rank, world, port, script, sys.argv[3:])
            return
        children.append(pid)
    # The store's thread begins after the forks.
    store = torch.distributed.TCPStore(
        "localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=door.detach()
    )
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    del store
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
