# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain tensors that are parts of larger ones, as Megatron-LM, ColossalAI and mixtures of
experts have them: the user says which part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ... import _mesh
from ..tensors.dlpack import divided, set_grad
from ..tensors.members import ObstacleError
from . import alike as _alike
from .agreement import difference
from .base_part import Part
from .cut_blocks import Shares
from .describe import axis_names, lies
from .exchanges import exchanging, gathered, group_among
from .state_parts import assemble, box_part, cuts_blocks, offsets_of, state_sizes, unresolved

DISTINCT = "distinct"
SHARED = "shared "  # how the key of a tensor with shared_over begins
_GRADS = ("reduced", "partial")


@dataclass(frozen=True)
class Layout:
    """How a plain parameter lies on a mesh.

    Args:
        mesh: a ``torch.distributed.DeviceMesh``.
        placements: for each of its dims ``Shard(d)``, ``Replicate()``, or ``"distinct"``
            where other coordinates hold other tensors: pipeline stages, experts.
        grad: "reduced", or "partial" where it is still to be summed over the dims of the
            mesh over which the parameter is replicated; of ``shared_over`` over the ranks that
            have it.
        grad_divisor: what the gradient is divided by, after the sum.
        predivide: divides each rank's gradient before the sum in place of the sum: in float32,
            rounded to the type in which it crosses. Of ``grad="partial"`` with a divisor.
        shape: of the whole tensor; by default the ranks add up what they have.
        shared_over: the name of a dim of the mesh with ``Replicate()``, of which not all
            coordinates have the tensor: the first of those that do counts it. Without, it is
            coordinate 0. The tensor is what one expression of ``layouts`` matches, under
            any name, or for each value of the expression's groups another one.

    Raises ValueError for other values.
    """

    mesh: object
    placements: Sequence
    grad: str = "reduced"
    grad_divisor: float | None = None
    shape: tuple[int, ...] | None = None
    shared_over: str | None = None
    predivide: bool = False

    def __post_init__(self):
        if len(self.placements) != self.mesh.ndim:
            raise ValueError(
                f"the layout has {len(self.placements)} placements, its mesh has "
                f"{self.mesh.ndim} dims"
            )
        for placement in self.placements:
            known = placement == DISTINCT or (
                hasattr(placement, "is_replicate")
                and (placement.is_replicate() or isinstance(getattr(placement, "dim", None), int))
            )
            if not known:
                raise ValueError(
                    f"placement {placement!r} is none of Shard(d), Replicate() and 'distinct'"
                )
        if self.grad not in _GRADS:
            raise ValueError(f"grad is {self.grad!r}, expected 'reduced' or 'partial'")
        if self.predivide and (self.grad != "partial" or self.grad_divisor is None):
            raise ValueError("predivide is of no use without grad='partial' and a grad_divisor")
        if self.shared_over is not None:
            self._check_shared()

    def _check_shared(self) -> None:
        names = self.mesh.mesh_dim_names or ()
        if self.shared_over not in names:
            raise ValueError(
                f"shared_over is {self.shared_over!r}, expected one of the mesh's dims: "
                f"{', '.join(names) or 'they have no names'}"
            )
        placement = self.placements[self.shared_dim]
        if placement == DISTINCT or not placement.is_replicate():
            raise ValueError(
                f"shared_over is {self.shared_over!r}, whose placement is {placement}, expected "
                "Replicate()"
            )

    @property
    def shared_dim(self) -> int | None:
        """The number of the mesh's dim that ``shared_over`` names."""
        if self.shared_over is None:
            return None
        return self.mesh.mesh_dim_names.index(self.shared_over)


Rule = tuple[str, Layout | None]


def check_rules(layouts: Sequence[Rule] | None) -> tuple[Rule, ...]:
    """The argument ``layouts`` of an optimizer; TypeError for what is none."""
    rules = tuple(layouts or ())
    for rule in rules:
        if not (isinstance(rule, tuple) and len(rule) == 2 and isinstance(rule[0], str)):
            raise TypeError(f"layouts has {rule!r}, expected a regular expression and a Layout")
        if rule[1] is not None and not isinstance(rule[1], Layout):
            raise TypeError(f"layouts has {rule[1]!r} for '{rule[0]}', expected a Layout or None")
        re.compile(rule[0])
    return rules


def check_places(rules: tuple[Rule, ...]) -> None:
    """ValueError where ranks may share a tensor and have others beside it, so that its place
    among their parameters, which random bits are of, may not be the same."""
    layouts = [(pattern, layout) for pattern, layout in rules if layout is not None]
    for other, layout in layouts:
        for axis, placement in enumerate(layout.placements):
            if placement != DISTINCT or layout.mesh.size(axis) == 1:
                continue
            for pattern, own in rules:
                if own is None or (own.mesh == layout.mesh and own.placements[axis] != DISTINCT):
                    raise ValueError(
                        f"layouts has '{pattern}' for tensors that ranks share which have others "
                        f"beside them, as '{other}' is distinct; rounding='stochastic' is of a "
                        "parameter's place among all"
                    )


def match(rules: tuple[Rule, ...], group: dict, place: int, name: str) -> tuple:
    """The layout of the first expression that matches the whole name, and what tells the
    tensors of expressions apart on all ranks; ObstacleError where none does, or the
    parameters have no names."""
    names = group.get("param_names")
    if not names:
        raise ObstacleError(
            f"{name} has no name; layouts needs named parameters: model.named_parameters()", False
        )
    for number, (pattern, layout) in enumerate(rules):
        if found := re.fullmatch(pattern, names[place]):
            shared = layout is not None and layout.shared_over is not None
            return layout, f"{SHARED}{number} {found.groups()}" if shared else str(number)
    raise ObstacleError(f"{name} is matched by none of {len(rules)} layouts", False)


def find(rules: tuple[Rule, ...], group: dict, place: int, name: str) -> Layout | None:
    """The layout alone."""
    return match(rules, group, place, name)[0]


class PlainPart(Part):
    """A plain parameter that is the rank's part of a larger tensor (see :mod:`.parts`).

    ``first`` is where it begins in the whole, once resolved. ``has_grad``: whether a rank has
    a gradient to be summed (:mod:`.presence`).
    """

    has_grad = True
    facts: _alike.Facts | None = None  # that go with the next sum
    _known: tuple | None = None  # the whole's shape and the first, of an earlier binding
    shares: tuple[Shares, ...] = ()  # of dims that are cut, unless they are of an earlier binding

    def __init__(
        self,
        param: torch.Tensor,
        name: str,
        how: Layout,
        states_of,
        reduce_dtype,
        sharing=None,
        seen=None,
    ):
        self.param, self.name, self.how, self.seen = param, name, how, seen
        self._sharing = sharing  # of an optimizer with layouts
        self._reduce_dtype = reduce_dtype
        self.relocate()
        self.whole: dict = {}
        self.states_of = states_of
        self._sums: list[dist.ProcessGroup] = []  # over which the gradient is summed, in turn

    @property
    def is_sharded(self) -> bool:
        placements = self.how.placements
        return any(p != DISTINCT and not p.is_replicate() for p in placements)

    @property
    def sums_at_step(self) -> bool:
        return self.how.grad == "partial"

    @property
    def lies(self) -> list[str]:
        shared = [] if self.how.shared_over is None else [f"shared over {self.how.shared_over}"]
        return [*lies(self.how.mesh, self.how.placements), *shared]

    @property
    def gradient(self) -> str:
        words = self.how.grad
        if self.sums_at_step:
            names, placements = axis_names(self.how.mesh), self.how.placements
            pairs = zip(names, placements, strict=True)
            over = [n for n, p in pairs if p != DISTINCT and p.is_replicate()]
            words = f"summed over {', '.join(over)}"
        divisor = self.how.grad_divisor
        if divisor is None:
            return words
        before = f"divided by {divisor:g}"
        return f"{before}, {words}" if self.how.predivide else f"{words}, {before}"

    @property
    def whole_shape(self) -> tuple[int, ...] | None:
        """Known from the first step on, where the layout does not say it."""
        if self.first is not None:
            return self.shape
        return None if self.how.shape is None else tuple(self.how.shape)

    def cut_over(self) -> list:
        """The process groups whose ranks have other parts of it, or other tensors."""
        return [
            self.how.mesh.get_group(d)
            for d, placement in enumerate(self.how.placements)
            if placement == DISTINCT or not placement.is_replicate()
        ]

    @property
    def place(self) -> str | None:
        """By its coordinates: what is known without the other ranks."""
        mesh, words, names = self.how.mesh, [], axis_names(self.how.mesh)
        for number, placement in enumerate(self.how.placements):
            if placement == DISTINCT or not placement.is_replicate():
                at = f"{mesh.get_local_rank(number)} of {mesh.size(number)}"
                dim = "" if placement == DISTINCT else f"dim {placement.dim}, "
                words.append(f"{dim}{names[number]} {at}")
        return f"part ({'; '.join(words)})" if words else None

    def describe(self, axes: dict) -> str:
        """What is the same on all ranks that have parts of it."""
        shape = [str(extent) for extent in self.param.shape]
        for placement in self.how.placements:
            if placement != DISTINCT and not placement.is_replicate():
                shape[placement.dim] = "-"
        placements = ", ".join(map(str, self.how.placements))
        divided = "" if self.how.grad_divisor is None else f" divided by {self.how.grad_divisor}"
        divided += " before the sum" if self.how.predivide else ""
        shared = "" if self.how.shared_over is None else f", shared over {self.how.shared_over}"
        return (
            f"{self.param.dtype} of shape ({', '.join(shape)}), layout {placements} over "
            f"{'+'.join(axes[self.how.mesh])}, gradient {self.how.grad}{divided}{shared}"
        )

    def alike(self, axes: dict, mesh) -> set[str]:
        """Not those of which only some ranks may have the tensor: pipeline stages."""
        own = enumerate(axes[self.how.mesh])
        even = {
            axis for dim, axis in own if self.how.placements[dim] != DISTINCT and self._is_even(dim)
        }
        return even | self.speaks(axes)

    def _is_even(self, dim: int) -> bool:
        return self._sharing is None or not self._sharing.is_uneven(self.how.mesh, dim)

    def speaks(self, axes: dict) -> set[str]:
        """Those along which it is cut or summed, and all ranks have it."""
        pairs = zip(axes[self.how.mesh], self.how.placements, strict=True)
        return {
            axis
            for number, (axis, placement) in enumerate(pairs)
            if placement != DISTINCT
            and number != self.how.shared_dim
            and (self.sums_at_step or not placement.is_replicate())
        }

    @property
    def sum_key(self) -> str:
        """By which ranks that have other tensors beside it order its sum; "" where none have."""
        if not self.sums_at_step or self._sharing is None or self.how.shared_over is None:
            return ""
        return self._sharing.key(self.param)

    def remember(self, own: PlainPart) -> None:
        """Takes over how large the parts of other ranks are."""
        if own.first is not None and own.how == self.how and own.param.shape == self.param.shape:
            self._known = own.shape, own.first

    def resolve(self, axes: dict, mesh) -> None:
        """Asks the other ranks how large their parts are, where that is not known: all of them
        together."""
        dims: dict[int, list[str]] = {}
        summed, distinct = [], []
        pairs = zip(axes[self.how.mesh], self.how.placements, strict=True)
        for number, (axis, placement) in enumerate(pairs):
            # To the plan, the first that has it is one of those that have another.
            if placement == DISTINCT or self._counts_over(number):
                distinct.append(axis)
            elif placement.is_replicate():
                if number != self.how.shared_dim:
                    summed.append(axis)
            else:
                dims.setdefault(placement.dim % max(self.param.dim(), 1), []).append(axis)
        self._find_extents(dims, mesh)
        placed = tuple((dim, tuple(names)) for dim, names in sorted(dims.items()))
        shape, start = self.seen_layout(self.shape) if self.is_seen else (self.shape, self.first)
        self.layout = _mesh.Layout(shape, placed, distinct=tuple(distinct), start=start)
        self.whole = self.states_of(self.shape)
        if self.sums_at_step:
            self._find_sums(summed, self.describe(axes), mesh)

    def _find_sums(self, axes: list[str], words: str, mesh) -> None:
        """Over ranks that all have it, then over those along ``shared_over`` that do, which tell
        each other what they have; CommunicationError."""
        self._sums = [mesh.group_of(axes)] if axes else []
        if self.how.shared_over is None:
            return
        holders = self._sharing.holders(self.param, self.how)
        if len(holders) == 1:
            return
        group = group_among(holders, self.how.mesh.get_group(self.how.shared_dim))
        self._sums.append(group)
        if self._known is not None:
            return
        every = gathered(words, f"{self.name} could not be compared", group, mesh.device)
        for rank, theirs in zip(dist.get_process_group_ranks(group), every, strict=True):
            if theirs != words:
                raise difference([words], [theirs], [rank])

    def _counts_over(self, dim: int) -> bool:
        """Whether it is shared over the dim, and counted by this rank."""
        if self.how.shared_dim != dim:
            return False
        return self._sharing.counts(self.param, self.how, self._sharing.axis(self.how.mesh, dim))

    def _find_extents(self, dims: dict[int, list[str]], mesh) -> None:
        if self._known is not None:
            self.shape, self.first = self._known
            return
        shape, first = list(self.param.shape), [0] * self.param.dim()
        shares = []
        for dim, names in sorted(dims.items()):
            group = mesh.host(mesh.group_of(names))
            extents = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device="cpu")
            rank = dist.get_rank(group)
            extents[rank] = shape[dim]
            with exchanging(f"the parts of {self.name} could not be put in order", group):
                dist.all_reduce(extents, group=group)
            first[dim], shape[dim] = int(extents[:rank].sum()), int(extents.sum())
            sizes = tuple(dist.get_world_size(mesh.group_of([name])) for name in names)
            ranks = tuple(dist.get_process_group_ranks(group))
            shares.append(Shares(dim, sizes, ranks, tuple(extents.tolist())))
        self.shape = tuple(self.how.shape or shape)
        self.first, self.shares = tuple(first), tuple(shares)

    def is_current(self) -> bool:
        return self.param.data_ptr() == self.local.data_ptr()

    def relocate(self) -> None:
        own = self.memory_as_seen(self.param.detach())
        self.local = own.requires_grad_(self.param.requires_grad)

    def refresh(self) -> None:
        """Takes the gradient; one that is partial is summed, which all ranks of the
        mesh do together. The user's own stays as it is."""
        grad = self.param.grad
        if self._sums:
            grad = self._sum(grad)
        before_the_sum = self.how.predivide and self._sums
        if grad is not None and self.how.grad_divisor is not None and not before_the_sum:
            grad = divided(grad.detach(), self.how.grad_divisor)
        set_grad(self.local, grad if grad is None else self.as_seen(grad))

    def _sum(self, grad: torch.Tensor | None) -> torch.Tensor | None:
        """Over ranks; zero where it is missing, None where it is missing on all."""
        # A type that all ranks know, whether they have a gradient or not.
        own = getattr(self.param, "grad_dtype", None) or self.param.dtype
        dtype = self._reduce_dtype or own
        if self.param.device.type != "cpu":
            return self._sum_on_device(grad, dtype)
        size, facts, self.facts = self.param.numel(), self.facts, None
        more = 0 if facts is None else _alike.ADDENDS
        line = torch.zeros(size + 1 + more, dtype=dtype, device="cpu")
        if grad is not None:
            line[:size] = self._addend(grad.detach().reshape(-1))
            line[size] = 1  # that there is one
        if facts is not None:
            line[size + 1 :] = _alike.addends(facts)
        self._add_up(line)
        if facts is not None and not _alike.same_addends(line[size + 1 :]):
            _alike.refuse(facts, self._sums, self.param.device)
        if not line[size]:
            return None
        return line[:size].view(self.param.shape).to(torch.promote_types(dtype, self.param.dtype))

    def _add_up(self, line: torch.Tensor) -> None:
        with exchanging(f"the gradient of {self.name} could not be summed", *self._sums):
            for group in self._sums:
                dist.all_reduce(line, group=group)

    @property
    def sums(self) -> list[dist.ProcessGroup]:
        """The groups over which the gradient is summed, in turn."""
        return self._sums

    def _sum_on_device(self, grad: torch.Tensor | None, dtype) -> torch.Tensor | None:
        """The same, where the hosts have told each other whether there is one."""
        if not self.has_grad:
            return None
        line = torch.zeros(self.param.shape, dtype=dtype, device=self.param.device)
        if grad is not None:
            line.copy_(self._addend(grad.detach()))
        self._add_up(line)
        return line.to(torch.promote_types(dtype, self.param.dtype))

    def _addend(self, grad: torch.Tensor) -> torch.Tensor:
        """What this rank adds to the sum."""
        if not self.how.predivide:
            return grad
        wide = torch.promote_types(grad.dtype, torch.float32)
        return divided(grad.to(wide), self.how.grad_divisor)

    def hide(self, name: str, state):
        """A whole state, as ``full_state_dict`` has it, is cut."""
        whole = self.whole.get(name)
        if whole is None or not isinstance(state, torch.Tensor):
            return state
        whole = whole.of(state)
        own = state_sizes(whole, self.first, self.param.shape)
        if tuple(state.shape) != whole.shape or tuple(state.shape) == own:
            return state
        first = offsets_of(whole, self.first)
        at = tuple(slice(f, f + s) for f, s in zip(first, own, strict=True))
        return state[at].clone()

    def saved(self, name: str, state):
        if not isinstance(state, torch.Tensor) or self.place is None or name == "step":
            return state
        if self.first is None:
            guess = self.states_of(tuple(self.param.shape)).get(name)
            return unresolved(state, guess, self.place)
        whole = self.whole.get(name)
        return state if whole is None else self._part_of(state, whole.of(state))

    def shares_blocks(self, scales) -> bool:
        return self.first is not None and cuts_blocks(
            scales, self.first, self.param.shape, self.shape
        )

    def _part_of(self, state: torch.Tensor, whole) -> torch.Tensor:
        return box_part(state, whole, self.first, self.param.shape, self.shape, self.place)

    def full(self, name: str, state, mesh):
        """The whole state: all ranks of the mesh together."""
        whole = self.whole.get(name)
        if whole is None or not self.layout.dims:
            return state
        group = mesh.group_of([axis for _, names in self.layout.dims for axis in names])
        return assemble(state, whole.shape, offsets_of(whole, self.first), group)


def carriers(parts: list) -> list[tuple[PlainPart, list[PlainPart]]]:
    """The first part that is summed over each ranks, and all that are summed over them."""
    found: dict[tuple, list[PlainPart]] = {}
    for part in parts:
        own = getattr(part, "inner", part)
        if isinstance(own, PlainPart) and own.sums:
            found.setdefault(tuple(map(id, own.sums)), []).append(own)
    return [(own[0], own) for own in found.values()]
