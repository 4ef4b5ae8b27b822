# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters as ColossalAI hands them to an optimizer by ``setup_distributed``.

Tensor parallelism notes on a tensor how it is cut (``dist_layout``). ZeRO puts a master of
each parameter into the groups: of the N elements that the ranks of its group have alike,
end to end, rank r of W has [r * c, (r + 1) * c), c = N / W rounded up, with zeros behind N;
``shard_to_working_param`` leads from the master's ``id()`` to the parameter. Gradients of
masters have been reduced, and the library gathers the parameters.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..tensors.dlpack import set_grad
from ..tensors.members import ObstacleError
from .layouts import Layout
from .state_parts import assemble
from .zero.part import ZeroPart, has_rows, row_size


class Shards:
    """What ``setup_distributed`` was told. ``dp_group`` is None where nothing is cut over it."""

    def __init__(self, tp_group, dp_group, working: dict[int, torch.Tensor]):
        from torch.distributed.device_mesh import DeviceMesh

        self.mesh = None
        if tp_group is not None and dist.get_world_size(tp_group) > 1:
            self.mesh = DeviceMesh.from_group(tp_group, "cpu", mesh_dim_names=("tp",))
        several = dp_group is not None and dist.get_world_size(dp_group) > 1
        self.dp_group = dp_group if several else None
        self._working = working

    def __reduce__(self):
        from ... import errors

        raise errors.StepcError(
            "an optimizer after setup_distributed cannot be copied or pickled: its process groups "
            "cannot; save its state_dict"
        )

    def part(self, param: torch.Tensor, whole_part, make):
        """The part (see :mod:`.parts`) of a parameter or master. ``whole_part`` makes that of
        a tensor which all ranks have, ``make`` a PlainPart of a tensor and its Layout."""
        working = self._working.get(id(param), param)
        if self.mesh is None:
            inner = whole_part(working)
        else:
            inner = make(working, Layout(self.mesh, [_placement(working)]))
        return inner if working is param else MasterPart(inner, param, self.dp_group)


def _placement(working: torch.Tensor):
    """On the axis of tensor parallelism; ObstacleError where it is cut in several dims."""
    from torch.distributed.tensor import Replicate, Shard

    layout = getattr(working, "dist_layout", None)
    dims = {} if layout is None else layout.sharding_spec.dim_partition_dict
    cut = [dim for dim, axes in dims.items() if axes]
    if len(cut) > 1:
        raise ObstacleError(
            f"a parameter of shape {tuple(working.shape)} is cut in dims {cut}; setup_distributed "
            "has one group of tensor parallelism, for one dim",
            False,
        )
    return Shard(cut[0]) if cut else Replicate()


class MasterPart(ZeroPart):
    """The range of a parameter that a master has. ``param`` is the master, with what it is
    padded with; ``local`` is a view without. ``inner`` is of the parameter."""

    def __init__(self, inner, master: torch.Tensor, group: dist.ProcessGroup | None):
        self.inner, self.param, self.name = inner, master, inner.name
        self._group = group
        size = inner.local.numel()
        world = 1 if group is None else dist.get_world_size(group)
        length = -(-size // world)
        if master.numel() != length:
            raise ObstacleError(
                f"{self.name} has {master.numel()} elements, expected {length}: a part of "
                f"{tuple(inner.local.shape)} over {world} ranks",
                False,
            )
        self.begin = min(length * (0 if group is None else dist.get_rank(group)), size)
        self.end = min(self.begin + length, size)
        # Not cut over the group, it has all rows.
        self.by_rows = group is None or has_rows(inner)
        self._check_rows()
        self._memory = master.data_ptr()
        with torch.no_grad():
            self.local = self._of_master(master).detach().requires_grad_(master.requires_grad)
            self.own = self.local

    def _check_rows(self) -> None:
        row = max(row_size(self.inner.local), 1)
        if self.by_rows and (self.begin % row or self.end % row):
            raise ObstacleError(
                f"{self.name} is elements [{self.begin}, {self.end}) of "
                f"{tuple(self.inner.local.shape)}, which tensor parallelism has cut, and these are "
                "not whole rows; use zero=Zero(1, ...) or Zero(2) of this optimizer, which cut "
                "between rows",
                False,
            )

    def _of_master(self, tensor: torch.Tensor) -> torch.Tensor:
        """What of a tensor like the master is no padding, in the shape of ``local``."""
        own = tensor.reshape(-1)[: self.end - self.begin]
        if not self.by_rows:
            return own
        first, last = self.rows
        shape = self.inner.local.shape
        return own.view(last - first, *shape[1:]) if shape else own.view(())

    @property
    def lies(self) -> list[str]:
        return self.inner.lies if self._group is None else super().lies

    def is_current(self) -> bool:
        return self.param.data_ptr() == self._memory and self.inner.is_current()

    def refresh(self) -> None:
        grad = self.param.grad
        set_grad(self.local, None if grad is None else self._of_master(grad).detach())

    def alike(self, axes: dict, mesh) -> set[str]:
        return self.inner.alike(axes, mesh) if self._group is None else super().alike(axes, mesh)

    def resolve(self, axes: dict, mesh) -> None:
        if self._group is not None:
            super().resolve(axes, mesh)
        else:
            self.inner.resolve(axes, mesh)
            self.layout = self.inner.layout

    def is_bare(self, name: str, state: torch.Tensor) -> bool:
        """Never: ColossalAI cuts what it loads itself, for each rank."""
        return False

    def hide(self, name: str, state):
        """As ColossalAI loads it, it may be padded."""
        whole = self.whole.get(name)
        if (
            whole is not None
            and isinstance(state, torch.Tensor)
            and state.shape == self.param.shape
            and whole.has_dims_of(self.inner.param)
        ):
            return self._of_master(state)
        return super().hide(name, state)

    def full(self, name: str, state, mesh):
        """The whole state: all ranks of the groups together."""
        if self._group is None:
            return self.inner.full(name, state, mesh)
        if not self.is_cut(name):
            return super().full(name, state, mesh)
        shape = self.whole[name].shape
        numel = self.inner.local.numel()
        line = assemble(state.reshape(-1), (numel,), (self.begin,), self._group)
        return line.view(shape)
