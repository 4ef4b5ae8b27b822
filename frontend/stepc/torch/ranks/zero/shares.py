# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO over plain parameters: each rank keeps the states of a part of the elements and steps
it, and the ranks put the parameters together again.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, P_os. Which part of what a rank has, says the runtime, which cuts buckets of
parameters, has their gradients cross ranks and gathers them (docs/sharding.md). Groups that are
added are bound apart, so that what a rank has of the others stays.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist

from .... import errors
from ...._mesh import Layout, Mesh
from ...._runtime import Cut, Whole, cuts_of
from ...tensors import dlpack as _tensors
from ...tensors.members import ObstacleError
from .. import alike as _alike
from ..exchanges import exchanging, gathered
from ..shared_memory import all_reduce
from ..state_parts import TOGETHER, broadcast
from . import flat as _flat
from .owned_share import OwnedShare
from .part import SharedPart, has_rows
from .settings import ZeroSettings


def check(parts: list, how: ZeroSettings) -> None:
    """ObstacleError for a parameter that cannot be cut, or not be where the settings want it, or
    of which the ranks of the group have other parts: before anything crosses, for their sizes may
    differ."""
    ranks_of = dist.get_process_group_ranks
    own = set(ranks_of(how.group))
    for part in parts:
        if any(len(own.intersection(ranks_of(over))) > 1 for over in part.cut_over()):
            raise ObstacleError(
                f"{part.name} is another part on each rank of the process group, over which zero "
                "shares states of equal parts",
                False,
            )
        param, first = part.local, parts[0]
        words = _tensors.why_not_stepped_there(param)
        if param.layout is not torch.strided:
            words = f"has layout {param.layout}; zero takes dense parameters"
        elif not words and param.device != first.local.device:
            words = f"is on device '{param.device}', {first.name} on '{first.local.device}'; a "
            words += "step is of one device"
        elif not words and param.dtype not in _tensors.STORAGE:
            words = (
                f"has dtype {param.dtype}; supported are {', '.join(map(str, _tensors.STORAGE))}"
            )
        if words:
            raise ObstacleError(f"{part.name} {words}", False)
    if how.flat is not None:
        _flat.check(parts)


def in_order(inner: list, how: ZeroSettings) -> list[list]:
    """The parts of a batch as they are bound, in calls of their own: those whose gradients come
    first are first. What a step sums before it crosses comes apart, behind the others, and each
    that was frozen."""
    frozen = [[part] for part in inner if how.frozen.was(part.param)]
    rest = [part for part in inner if not how.frozen.was(part.param)]
    if not how.takes_as_they_come:
        return [own for own in (rest, *frozen) if own]
    late = [part for part in reversed(rest) if part.sums_at_step]
    early = [part for part in reversed(rest) if not part.sums_at_step]
    return [own for own in (early, late, *frozen) if own]


def _choose_owners(
    inner: list, how: ZeroSettings, cost_of: Callable[[object], float | None]
) -> None:
    """Of the parts of a batch that are not cut. What is frozen has none of the others' work."""
    costs: tuple[dict[int, float], dict[int, float]] = {}, {}
    for part in inner:
        cost = None if has_rows(part) else cost_of(part)
        if cost is not None:
            costs[how.frozen.was(part.param)][id(part.param)] = cost
    for own in costs:
        how.owners.settle(own, how.world)


def _cuts(
    inner: list,
    owners: list[int | None],
    how: ZeroSettings,
    ranks: Iterable[int],
    has_codes: Callable[[object], bool],
) -> list[list[list[Cut]]]:
    """Of each of these ranks of the group, which elements of each it steps, where they are bound
    in one call, or of each block of one; ``owners``: of those that are not cut, None of others."""
    axis, tensors, counts = "zero", [], []
    for part, owner in zip(inner, owners, strict=True):
        dtype, shape = part.local.dtype, tuple(part.local.shape)
        if owner is not None and part.blocks is not None:
            shapes, entry = part.blocks.shapes, how.entry(dtype, axis, owner)
            kind = _tensors.STORAGE[dtype]
            tensors += [Whole(part.name, s, kind, Layout(s), entry) for s in shapes]
            counts.append(len(shapes))
            continue
        counts.append(1)
        layout = Layout(shape, flat=(axis,), begin=-1)
        if owner is not None:
            layout = Layout(shape)
        elif has_rows(part):
            layout = Layout(shape, ((0, (axis,)),))
        entry = how.entry(dtype, axis, owner)
        coded = owner is None and has_codes(part)
        tensors.append(Whole(part.name, shape, _tensors.STORAGE[dtype], layout, entry, coded))
    mesh = Mesh((axis,), (how.world,))
    found = cuts_of(mesh, tensors, ranks, how.reduce_bytes, how.gather_bytes or 0)
    ends = list(itertools.accumulate(counts, initial=0))
    return [[own[a:b] for a, b in itertools.pairwise(ends)] for own in found]


def _whole_of(cuts: list[Cut]) -> tuple[int, int]:
    """The elements [begin, end) of a part: of blocks, of which a rank has all or nothing, those of
    all."""
    if len(cuts) == 1:
        return cuts[0].begin, cuts[0].end
    return 0, sum(cut.end - cut.begin for cut in cuts)


class Shares:
    """What each rank of the group steps of the parameters of an optimizer.

    ``batches``: the parts of groups that were added together, which the ranks have alike.
    ``cost_of``: what a step of a part costs whose rule is of whole matrices, else None;
    ``has_codes``: whether states of one are kept as codes, whose blocks are not cut.
    ObstacleError for one that cannot be cut.
    """

    def __init__(
        self,
        batches: list[list],
        how: ZeroSettings,
        cost_of: Callable[[object], float | None],
        has_codes: Callable[[object], bool],
    ):
        self.how, self._has_codes = how, has_codes
        self._checked = False
        self._checksums: dict[int, torch.Tensor] = {}  # of gradients that are gone, by id(part)
        self._parts: dict[int, SharedPart] = {}  # by id() of the parameter
        self.calls: list[list[SharedPart]] = []  # that are bound together
        check(list(itertools.chain.from_iterable(batches)), how)
        for own in batches:
            _choose_owners(own, how, cost_of)
        for inner in itertools.chain.from_iterable(in_order(own, how) for own in batches):
            if self.how.flat is not None:
                self.how.flat.place(inner)
            owners = [how.owners.of(part.param) for part in inner]
            (cuts,) = _cuts(inner, owners, self.how, [self.how.rank], has_codes)
            kinds = [SharedPart if owner is None else OwnedShare for owner in owners]
            parts = [
                kind(part, self.how, *_whole_of(own))
                for kind, part, own in zip(kinds, inner, cuts, strict=True)
            ]
            for part, own in zip(parts, cuts, strict=True):
                part.cuts = own
            self.calls.append(parts)
            self._parts |= {id(part.param): part for part in parts}

    def __iter__(self):
        return itertools.chain.from_iterable(self.calls)

    def part_of(self, param: torch.Tensor) -> SharedPart:
        return self._parts[id(param)]

    def remember(self, other: Shares) -> None:
        """Whether the gradients of the same parameters have been compared before."""
        self._checked = other._checked and other._parts.keys() == self._parts.keys()

    def give_back(self) -> None:
        for part in self._parts.values():
            part.give_back()

    # --- Gradients ------------------------------------------------------------

    def forget_noted(self) -> None:
        """What was taken down of a step that has compared nothing, as one that broke off."""
        self._checksums.clear()

    def note_reduced(self, part: SharedPart, due: bool) -> None:
        """Takes down the bits of a gradient that will be gone when they are compared."""
        if not self.how.local_gradients and (due or not self._checked):
            grad = part.inner.local.grad
            self._checksums[id(part)] = _alike.checksum(grad, part.local.device)

    def compare_reduced(self, due: bool) -> None:
        """Where gradients are said to be reduced: that they have the same bits on all ranks, where
        that is due, or for the first time. TensorError."""
        if self._checked and not due:
            return
        parts = list(self)
        device = parts[0].local.device
        noted, self._checksums = self._checksums, {}
        sums = torch.stack(
            [noted.get(id(part), _alike.checksum(part.inner.local.grad, device)) for part in parts]
        )
        ends = torch.cat([sums, -sums])
        with exchanging("the gradients could not be compared", self.how.group):
            all_reduce(ends, dist.ReduceOp.MAX, self.how.group)
        high, low = ends.view(2, -1)
        for part, same in zip(parts, (high == -low).tolist(), strict=True):
            if not same:
                raise errors.TensorError(
                    f"the gradient of {part.name} is another one on some ranks, but "
                    "gradients='reduced' says that all have the same; gradients='local' takes "
                    "the mean",
                    "STEPC_INVALID_ARGUMENT",
                )
        self._checked = True

    # --- States ---------------------------------------------------------------

    def full(self, states: dict[int, dict]) -> None:
        """Puts whole states in place of this rank's ranges: all ranks together.

        ``states``: by ``id()`` of the parameter; all ranks have the same names.
        """
        kinds = defaultdict(list)
        for part in self:
            for name, state in states.get(id(part.param), {}).items():
                if part.is_cut(name) and not part.is_owned:
                    kinds[state.dtype].append((part, name))
        cuts = self.cuts()
        with torch.no_grad():
            for held in kinds.values():
                self._put_together(held, states, cuts)
            self._send_owned([part for part in self if part.is_owned], states)

    def _send_owned(self, parts: list, states: dict) -> None:
        """Every owner sends the states that it has."""
        if not parts:
            return
        own = [
            {n: (tuple(s.shape), s.dtype) for n, s in states.get(id(part.param), {}).items()
             if part.owns and part.is_cut(n)}
            for part in parts
        ]  # fmt: skip
        every = gathered(own, TOGETHER, self.how.group, parts[0].local.device)
        for number, part in enumerate(parts):
            of_part = states.setdefault(id(part.param), {})
            for rank, of_rank in enumerate(every):
                for name, (shape, dtype) in of_rank[number].items():
                    if rank != self.how.rank:
                        of_part[name] = part.local.new_empty(shape, dtype=dtype)
                    broadcast(of_part[name].contiguous(), rank, self.how.group)

    def cuts(self) -> list[dict[int, tuple[int, int]]]:
        """The elements that each rank steps, by ``id()`` of the parameter."""
        ranks = range(self.how.world)
        found: list[dict] = [{} for _ in ranks]
        for own in self.calls:
            owners = [self.how.owners.of(part.param) for part in own]
            inner = [part.inner for part in own]
            of_ranks = _cuts(inner, owners, self.how, ranks, self._has_codes)
            for cuts, of_rank in zip(found, of_ranks, strict=True):
                cuts |= {id(p.param): _whole_of(c) for p, c in zip(own, of_rank, strict=True)}
        return found

    def _put_together(self, held: list[tuple], states: dict, cuts: list[dict]) -> None:
        """Of one dtype: every rank sends what it has, side by side."""
        own = [states[id(part.param)][name].reshape(-1) for part, name in held]
        whole = [own[0].new_empty(math.prod(part.whole[name].shape)) for part, name in held]
        for rank, cut in enumerate(cuts):
            ranges = [part.range_of(name, *cut[id(part.param)]) for part, name in held]
            sizes = [end - begin for begin, end in ranges]
            line = torch.cat(own) if rank == self.how.rank else own[0].new_empty(sum(sizes))
            if not len(line):
                continue
            broadcast(line, rank, self.how.group)
            for (begin, end), target, piece in zip(ranges, whole, line.split(sizes), strict=True):
                target[begin:end] = piece
        for (part, name), made in zip(held, whole, strict=True):
            states[id(part.param)][name] = made.view(part.whole[name].shape)
