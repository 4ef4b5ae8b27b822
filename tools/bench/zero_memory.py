#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peak memory of a rank that trains with whole states, and with states shared by ZeRO.

    tools/bench/zero_memory.py [--layers 10] [--width 1000] [--ranks 4] [--only NAME]

Linear layers under DistributedDataParallel, three steps; each contestant in processes of its
own, over Gloo. The peak is that of the resident memory (VmHWM), of the rank that has the most,
with what of shared memory it has touched. Ours take the wrapper away where they reduce
gradients themselves.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontend"))

MIB = 1 << 20


def _torchs(params):
    import torch

    return torch.optim.AdamW(params, fused=True)


def _redundancy(params):
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(
        params, torch.optim.AdamW, parameters_as_bucket_view=True, lr=1e-3, fused=True
    )


def _ours(*zero):
    def make(params):
        import stepc.torch

        return stepc.torch.AdamW(params, zero=stepc.torch.Zero(*zero) if zero else 0)

    return make


# Name: what is made, and whether DistributedDataParallel reduces the gradients.
CONTESTANTS = {
    "nothing but the model and a backward pass": (None, True),
    "torch AdamW fused": (_torchs, True),
    "stepc AdamW": (_ours(), True),
    "torch ZeroRedundancyOptimizer AdamW fused, bucket view": (_redundancy, True),
    "stepc AdamW zero=1, reduced": (_ours(1, "reduced"), True),
    "stepc AdamW zero=1, local": (_ours(1, "local"), False),
    "stepc AdamW zero=2": (_ours(2), False),
}


def peak() -> int:
    """Bytes of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def train(arguments):
    """What one rank does; it leaves its peak in the folder."""
    import torch
    import torch.distributed as dist

    make, wrapped = CONTESTANTS[arguments.only]
    rank, folder = arguments.rank, arguments.folder
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=arguments.ranks
    )
    torch.manual_seed(0)
    sizes = [arguments.width] * arguments.layers
    model = torch.nn.Sequential(*(torch.nn.Linear(n, n, bias=False) for n in sizes))
    if wrapped:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = make(list(model.parameters())) if make else None
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(2, arguments.width)).sum().backward()
        if optimizer is not None:
            optimizer.step()
    dist.barrier()
    Path(folder, str(rank)).write_text(str(peak()))
    dist.barrier()
    os._exit(0)


def measure(arguments, name) -> int:
    """The peak of the rank that has the most."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"layers": arguments.layers, "width": arguments.width, "ranks": arguments.ranks}
        words = [f"--{word}={size}" for word, size in sizes.items()]
        command = [sys.executable, __file__, *words, "--only", name, "--folder", folder]
        running = [
            subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(arguments.ranks)
        ]
        if max(one.wait() for one in running):
            raise SystemExit(f"'{name}' failed")
        return max(int(Path(folder, str(rank)).read_text()) for rank in range(arguments.ranks))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", choices=CONTESTANTS, help="one of the contestants")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        train(arguments)
        return
    elements = arguments.layers * arguments.width**2
    print(f"{elements / 1e6:.1f} M elements in f32, {arguments.ranks} Gloo processes; "
          "peak of a rank in MiB, and beside the first line")  # fmt: skip
    least = None
    for name in [arguments.only] if arguments.only else CONTESTANTS:
        found = measure(arguments, name) / MIB
        least = found if least is None else least
        print(f"  {name:<56}{found:8.0f}{found - least:8.0f}", flush=True)


if __name__ == "__main__":
    main()
