# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that are DTensors: the local tensor that is stepped, and its layout."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Sequence

import torch

from ... import errors
from ..._mesh import Layout
from ..binding.rules import WholeState
from ..tensors.dlpack import set_grad
from ..tensors.members import ObstacleError
from ..tensors.stored import StoredState
from .base_part import Part
from .beside import others_along, rest
from .describe import axis_names, lies
from .exchanges import exchanging
from .layouts import DISTINCT
from .state_parts import TOGETHER, StatePart, assemble, box_part, offsets_of, state_sizes


def is_dtensor(tensor) -> bool:
    """Whether it is a DTensor, without importing what has them."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _local(tensor) -> torch.Tensor:
    """The rank's part, waited for where a collective is still to write it."""
    part = tensor.to_local()
    return part.wait() if hasattr(part, "wait") and hasattr(part, "elem") else part


class DTensorPart(Part):
    """A DTensor parameter as the plan sees it.

    ``local`` is an ordinary tensor in the memory of its part; ``layout`` says which part.
    States are DTensors to the user, in the parameter's placements where they have its
    dims.
    """

    gradient = "in any placements"
    is_shared = False  # whether zero cuts it once more

    def __init__(
        self,
        param,
        name: str,
        states_of,
        reduce_dtype: torch.dtype | None = None,
        seen=None,
        how=None,
        sharing=None,
    ):
        self.how, self._sharing = how, sharing  # what layouts say is beside it
        self.param, self.name, self.states_of, self.seen = param, name, states_of, seen
        self._reduce_dtype = reduce_dtype
        self._spec = param._spec
        self._memory = param._local_tensor
        with torch.no_grad():
            self.local = self.memory_as_seen(_local(param).detach())
            self.local.requires_grad_(param.requires_grad)

    @property
    def lies(self) -> list[str]:
        own = lies(self.param.device_mesh, self.param.placements)
        if self.how is None:
            return own
        mesh, shared = self.how.mesh, self.how.shared_over
        others = [f"others along {axis_names(mesh)[d]}" for d in _distinct(self.how)]
        return [*others, *([] if shared is None else [f"shared over {shared}"]), *own]

    def describe(self, axes: dict) -> str:
        """All of the whole tensor, and how it lies."""
        placements = ", ".join(map(str, self.param.placements))
        over = "+".join(axes[self.param.device_mesh])
        return (
            f"{self.param.dtype} of shape {tuple(self.param.shape)}, DTensor of {placements} over "
            f"{over}{self._words_of_layout(axes)}"
        )

    def _words_of_layout(self, axes: dict) -> str:
        words = [f", others along {axes[self.how.mesh][dim]}" for dim in _distinct(self.how)]
        if self.how is not None and self.how.shared_over is not None:
            words.append(f", shared over {self.how.shared_over}")
        return "".join(words)

    def alike(self, axes: dict, mesh) -> set[str]:
        """Not along what stages, which may have other tensors, lie on."""
        own = set(axes[self.param.device_mesh])
        even = [d for d in rest(self.param, self.how) if d not in _distinct(self.how)]
        even = [d for d in even if not self._sharing.is_uneven(self.how.mesh, d)]
        return own | {axes[self.how.mesh][d] for d in even}

    def resolve(self, axes: dict, mesh) -> None:
        layout = _layout(self.param, axes[self.param.device_mesh], self.name)
        others = others_along(self.param, self.how, self._sharing)
        distinct = tuple(axes[self.how.mesh][dim] for dim in others)
        layout = dataclasses.replace(layout, distinct=distinct)
        if self.is_seen:
            shape, start = self.seen_layout(layout.shape)
            self.layout = dataclasses.replace(layout, shape=shape, start=start)
            return
        start = self.first if self._is_block() else None
        self.layout = dataclasses.replace(layout, start=start)

    @functools.cached_property
    def blocks_before(self) -> int | None:
        """As :class:`Part`. Of experts, or heads that are rows, of which each rank has as many."""
        seen = self.seen.shape(tuple(self.param.shape))
        cut = [p for p in self.param.placements if not p.is_replicate()]
        by_rows = all(getattr(p, "dim", None) == 0 for p in cut) and self._is_block()
        if self.is_shared or self.seen.view.parts or not by_rows:
            return None
        if not self.local.is_contiguous():
            return None
        if any(extent % self._ranks for extent in (self.param.shape[0], seen[0])):
            return None
        before = self.first[0] * seen[0] // max(self.param.shape[0], 1)
        return before * math.prod(seen[1:-2])

    @property
    def _ranks(self) -> int:
        """Over how many it is cut."""
        sizes = zip(self.param.placements, self.param.device_mesh.shape, strict=True)
        return math.prod(size for placement, size in sizes if not placement.is_replicate())

    @property
    def seen_here(self) -> tuple[int, ...]:
        rows, *others = self.seen.shape(tuple(self.param.shape))
        return rows // self._ranks, *others

    @functools.cached_property
    def whole(self) -> dict[str, WholeState]:
        found = self.states_of(tuple(self.param.shape))
        if not self.is_sharded or self.blocks is None:
            return found
        # Blocks are cut as the parameter is: between rows.
        dims = self.param.dim()

        def cut(own: WholeState) -> WholeState:
            return own if own.is_full(dims) else own._replace(of_param=(0, *own.of_param[1:]))

        return {name: own.each(cut) for name, own in found.items()}

    def _indices(self, dim: int) -> torch.Tensor:
        """Those of the whole that it has of a dim."""
        from torch.distributed.tensor import Replicate, distribute_tensor

        placements, mesh = self.param.placements, self.param.device_mesh
        alone = [
            _along(p, 0) if getattr(p, "dim", None) == dim else Replicate() for p in placements
        ]
        numbers = torch.arange(self.param.shape[dim], dtype=torch.int64, device="cpu")
        return distribute_tensor(numbers, mesh, alone, src_data_rank=None).to_local()

    def _is_block(self) -> bool:
        """Whether the part is a block of the whole: not where several ranks' rows alternate,
        as only placements with a split factor have them."""
        for dim in {p.dim for p in self.param.placements if hasattr(p, "split_factor")}:
            own = self._indices(dim)
            if own.numel() and int(own[-1] - own[0]) != own.numel() - 1:
                return False
        return True

    def alternating(self) -> list[list[int]]:
        """Of each dim the indices of the whole that it has, where it is no block."""
        return [self._indices(dim).tolist() for dim in range(self.param.dim())]

    @property
    def place(self) -> str | None:
        return place_of(self.param)

    @property
    def is_sharded(self) -> bool:
        return not all(placement.is_replicate() for placement in self.param.placements)

    def cut_over(self) -> list:
        """The process groups whose ranks have other parts of it, or other tensors."""
        mesh, placements = self.param.device_mesh, self.param.placements
        own = [mesh.get_group(d) for d, p in enumerate(placements) if not p.is_replicate()]
        return own + [self.how.mesh.get_group(d) for d in _distinct(self.how)]

    @property
    def first(self) -> tuple[int, ...]:
        """Where it begins in the whole tensor."""
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        mesh, placements = self.param.device_mesh, self.param.placements
        return tuple(compute_local_shape_and_global_offset(self.param.shape, mesh, placements)[1])

    def is_current(self) -> bool:
        """Whether the parameter still lies where and as it did."""
        same = self.param._local_tensor is self._memory or (
            self.param._local_tensor.data_ptr() == self.local.data_ptr()
            and self.param._local_tensor.shape == self._memory.shape
        )
        return same and self.param._spec == self._spec

    def refresh(self) -> None:
        """Gives ``local`` the gradient of the step, in the parameter's placements.

        A gradient that is still to be summed, or lies otherwise, is redistributed, which
        all ranks of its mesh do together.
        """
        grad = self.param.grad
        if grad is None:
            self.local.grad = None
            return
        if not is_dtensor(grad):
            raise ObstacleError(
                f"{self.name} is a DTensor and has a gradient that is a '{type(grad).__name__}'",
                False,
            )
        with torch.no_grad():
            same = grad.placements == self.param.placements
            own = (_local(grad) if same else self._redistributed(grad)).detach()
            set_grad(self.local, self.as_seen(own))

    def _redistributed(self, grad) -> torch.Tensor:
        dtype, sent = grad.dtype, self._reduce_dtype
        if sent is not None and any(p.is_partial() for p in grad.placements):
            grad = grad.to(sent)
        with exchanging(f"the gradient of {self.name} could not be reduced", *self._groups):
            grad = grad.redistribute(self.param.device_mesh, self.param.placements)
            return _local(grad.to(torch.promote_types(dtype, grad.dtype)))

    @property
    def _groups(self) -> list:
        mesh = self.param.device_mesh
        return [mesh.get_group(dim) for dim in range(mesh.ndim)]

    def _placements(self, whole: WholeState) -> list:
        """Of a state: those of the parameter in the dims that it has."""
        from torch.distributed.tensor import Replicate

        found = []
        for placement in self.param.placements:
            if not placement.is_replicate():
                own = [d for d, of in enumerate(whole.of_param) if of == placement.dim]
                placement = _along(placement, own[0]) if own else Replicate()
            found.append(placement)
        return found

    def show(self, name: str, state: torch.Tensor):
        """A state as the user has it: a DTensor in the placements of its dims. What the
        definition does not declare, a count, stays what it is."""
        whole = self.whole.get(name)
        if whole is None or isinstance(state, StoredState):
            return state
        from torch.distributed.tensor import DTensor

        whole = whole.of(state)
        if self.shares_blocks(whole):
            sizes = self.param._local_tensor.shape
            return box_part(state, whole, self.first, sizes, self.param.shape, self.place)
        same = whole.shape == tuple(self.param.shape)
        return DTensor.from_local(
            state,
            self.param.device_mesh,
            self._placements(whole),
            run_check=False,
            shape=torch.Size(whole.shape),
            stride=self.param.stride() if same else _row_major(whole.shape),
        )

    def hide(self, name: str, state):
        """The same as the plan has it. A whole tensor, as another world saved it, is cut;
        a DTensor that lies otherwise is refused."""
        whole = self.whole.get(name)
        if whole is None or not isinstance(state, torch.Tensor) or isinstance(state, StoredState):
            return state
        if isinstance(state, StatePart):
            return state.plain()
        whole = whole.of(state)
        if not is_dtensor(state):
            from torch.distributed.tensor import distribute_tensor

            own = None
            if self.shares_blocks(whole):
                own = state_sizes(whole, self.first, self.param._local_tensor.shape)
            if tuple(state.shape) not in (own, whole.shape):
                raise errors.TensorError(
                    f"state '{name}' of {self.name} has shape {tuple(state.shape)}, expected "
                    f"{whole.shape}, that of the whole tensor",
                    "STEPC_SHAPE_MISMATCH",
                )
            if own is not None:
                first = offsets_of(whole, self.first)
                at = tuple(slice(f, f + s) for f, s in zip(first, own, strict=True))
                return state if tuple(state.shape) == own else state[at].clone()
            mesh, placements = self.param.device_mesh, self._placements(whole)
            return _local(distribute_tensor(state, mesh, placements, src_data_rank=None))
        if list(state.placements) != self._placements(whole):
            raise errors.TensorError(
                f"state '{name}' of {self.name} has placements {tuple(state.placements)}, the "
                f"parameter has {tuple(self.param.placements)}; full_state_dict() makes a state "
                "that loads in any layout",
                "STEPC_LAYOUT_UNSUPPORTED",
            )
        return _local(state).detach()

    @property
    def box(self) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        return self.first, tuple(self.param._local_tensor.shape)

    def shares_blocks(self, whole: WholeState) -> bool:
        """Of scales: whether ranks share blocks, so that no placement says which each has. The
        same on all of them."""
        if whole.per == 1 or (dim := whole.of_param[-1]) is None:
            return False
        mesh = zip(self.param.placements, self.param.device_mesh.shape, strict=True)
        sizes = [size for placement, size in mesh if getattr(placement, "dim", None) == dim]
        parts = shares(self.param.shape[dim], sizes), shares(whole.shape[-1], sizes)
        return any(
            whole.blocks(*own) != range(*blocks) for own, blocks in zip(*parts, strict=True)
            if own[0] < own[1]
        )  # fmt: skip

    def full(self, name: str, state, mesh) -> torch.Tensor:
        """The whole state: all ranks of the mesh together."""
        if isinstance(state, StatePart):
            axes = [axis for _, names in self.layout.dims for axis in names]
            offsets = offsets_of(self.whole[name], self.first)
            return assemble(state.plain(), state.whole, offsets, mesh.group_of(axes))
        if not is_dtensor(state):
            return state
        with exchanging(TOGETHER, *self._groups):
            if state.dtype is torch.int16:  # Gloo has none; as other 16 bits they cross unread
                bits = self.show(name, state.to_local().view(torch.bfloat16))
                return bits.full_tensor().view(torch.int16)
            return state.full_tensor()


def place_of(param) -> str | None:
    """Which part a DTensor is, by its placements and coordinates; None where it is whole."""
    mesh = param.device_mesh
    words = [
        f"dim {placement.dim}, {mesh.get_local_rank(d)} of {mesh.size(d)}"
        for d, placement in enumerate(param.placements)
        if not placement.is_replicate()
    ]
    return f"part ({'; '.join(words)})" if words else None


def shares(extent: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The parts that ranks on a mesh of ``sizes`` have of a dim, as torch cuts it: along each dim
    of the mesh in turn, in parts of equal size but for the last."""
    parts = [(0, extent)]
    for size in sizes:
        parts = [
            (min(begin + k * -(-(end - begin) // size), end),
             min(begin + (k + 1) * -(-(end - begin) // size), end))
            for begin, end in parts for k in range(size)
        ]  # fmt: skip
    return parts


def _distinct(how) -> list[int]:
    """The dims of a layout's mesh along which others are, if there is one."""
    return [d for d, p in enumerate(() if how is None else how.placements) if p == DISTINCT]


def _along(placement, dim: int):
    """The placement of another dim."""
    if placement.dim == dim:
        return placement
    if hasattr(placement, "split_factor"):  # what FSDP2 makes of a dim that TP has cut
        return type(placement)(dim, split_factor=placement.split_factor)
    return type(placement)(dim)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= max(extent, 1)
    return tuple(reversed(strides))


def _layout(param, axes: tuple[str, ...], name: str) -> Layout:
    dims: dict[int, list[str]] = {}
    for axis, placement in zip(axes, param.placements, strict=True):
        # Shard, and _StridedShard, which is_shard() does not count.
        if not (placement.is_replicate() or isinstance(getattr(placement, "dim", None), int)):
            raise ObstacleError(f"{name} is a DTensor whose placement is {placement}", False)
        if not placement.is_replicate():
            dims.setdefault(placement.dim % max(param.dim(), 1), []).append(axis)
    placed = tuple((dim, tuple(names)) for dim, names in sorted(dims.items()))
    return Layout(tuple(param.shape), placed)
