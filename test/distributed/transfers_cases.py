# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps with exchanges around them, whose transfers torch.distributed makes."""

import sys
import tempfile
from pathlib import Path

import torch.distributed as dist
from on_ranks import case, main
from stepc.torch.ranks.meshes import TorchMesh
from torch.distributed.device_mesh import init_device_mesh

TEST = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TEST / folder) for folder in ("sharding", "exact", "interpreter")]

from entries import Packages, Run, compare, run_alone  # noqa: E402
from entry_models import random_model  # noqa: E402


class PackagesOfRankZero(Packages):
    """Compiled by one rank for all."""

    def compile(self, definition, variants, name):
        is_first = dist.get_rank() == 0
        made = [super().compile(definition, variants, name) if is_first else None]
        dist.broadcast_object_list(made)
        return made[0]


def check(shape, names, seeds):
    """Models on a mesh over all ranks: each rank has the bits of one process."""
    mesh = TorchMesh([init_device_mesh("cpu", shape, mesh_dim_names=names)])
    assert mesh.mesh.sizes == shape
    models = [random_model(seed, mesh.mesh) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        packages = PackagesOfRankZero(Path(folder))
        packages.prepare(models)
        for seed, model in zip(seeds, models, strict=True):
            package = packages.get(model)
            run = Run(model, package, mesh.communicator, dist.get_rank())
            for step in range(len(model.orders)):
                run.step(step)
            wrong = compare(model, run, run_alone(model, package))
            assert wrong == "", f"seed {seed}: {wrong}\n{model.describe()}"


@case
def test_one_axis():
    check((4,), ("dp",), range(20, 32, 2))


@case
def test_two_axes():
    check((2, 2), ("dp", "rep"), range(32, 44, 2))


if __name__ == "__main__":
    main()
