# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO over plain parameters: each rank keeps the states of a range of the elements,
steps it, and the ranks put the parameters together again.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, P_os. The parameters of one dtype are one line of elements, in order,
which is cut evenly: rank r has [r * c, (r + 1) * c) of it, c the length over the number
of ranks, rounded up. So a rank may have several tensors, a part of one, or none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import errors
from .._mesh import Layout
from ._members import ObstacleError
from ._rules import WholeState

AXIS = "zero"
_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel's
_UNIT = 16  # elements: cuts fall on whole vectors of a kernel


@dataclass(frozen=True)
class ZeroSettings:
    """What an optimizer's arguments ``zero``, ``process_group`` and ``gradients`` say."""

    group: dist.ProcessGroup
    local_gradients: bool
    stage: int
    bucket_bytes: int

    @property
    def place(self) -> tuple[int, ...]:
        """This rank in the group, how many there are, and what else cuts depend on."""
        own = dist.get_rank(self.group), dist.get_world_size(self.group)
        return own if self.stage == 1 else (*own, self.bucket_bytes)

    def __reduce__(self):
        raise errors.StepcError(
            "an optimizer with zero cannot be copied or pickled: its process group cannot; "
            "save its state_dict"
        )


def settings(
    zero: int, group, gradients: str | None, bucket_bytes: int | None
) -> ZeroSettings | None:
    """Checks the arguments; None where states are not sharded."""
    given = {"process_group": group, "gradients": gradients, "bucket_bytes": bucket_bytes}
    if zero not in (0, 1, 2):
        raise ValueError(f"zero is {zero!r}, expected 0, 1 or 2")
    for name, value in given.items():
        stages = "zero=2" if name == "bucket_bytes" else "zero=1 or 2"
        if value is not None and zero < (2 if name == "bucket_bytes" else 1):
            raise ValueError(f"{name} is of no use without {stages}")
    if zero == 0:
        return None
    if gradients not in ("reduced", "local"):
        raise ValueError(
            f"gradients is {gradients!r}, expected 'reduced' (all ranks have the same, as after "
            "DistributedDataParallel) or 'local' (each has its own; their mean is taken)"
        )
    if zero == 2 and gradients == "reduced":
        raise ValueError(
            "zero=2 reduces gradients itself, during the backward pass, and needs "
            "gradients='local'; over DistributedDataParallel, which has reduced them, zero=1 "
            "keeps as little"
        )
    if bucket_bytes is not None and bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}, expected a positive number")
    if not dist.is_initialized():
        raise ValueError(f"zero={zero} needs torch.distributed.init_process_group before it")
    return ZeroSettings(
        group if group is not None else dist.group.WORLD,
        gradients == "local",
        zero,
        bucket_bytes or _BUCKET_BYTES,
    )


def check_dense(named: list[tuple[torch.Tensor, str]]) -> None:
    """ObstacleError for a parameter that cannot be cut."""
    for param, name in named:
        if param.device.type != "cpu" or param.layout is not torch.strided:
            raise ObstacleError(
                f"{name} is on device '{param.device}' with layout {param.layout}; zero takes "
                "dense parameters on 'cpu'",
                False,
            )


class ZeroPart:
    """A parameter of which this rank steps the elements [begin, end), perhaps none."""

    whole: dict[str, WholeState] = {}

    def __init__(self, param: torch.Tensor, begin: int, end: int, name: str):
        self.param, self.name = param, name
        self.begin, self.end = begin, end
        self._memory = param.data_ptr()
        self._in_place = param.is_contiguous()
        with torch.no_grad():
            self.local = self._cut(param).detach().requires_grad_(param.requires_grad)
        self.layout = Layout(tuple(param.shape), flat=(AXIS,), begin=begin)

    def _cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's elements in row-major order; of a contiguous tensor a view."""
        return tensor.reshape(-1)[self.begin : self.end]

    def is_current(self) -> bool:
        return self.param.data_ptr() == self._memory

    def refresh(self) -> None:
        """Takes the gradient's part, and the parameter's where it is not in place."""
        with torch.no_grad():
            if not self._in_place:
                self.local.copy_(self._cut(self.param))
            grad = self.param.grad
            self.local.grad = None if grad is None else self._cut(grad).detach()

    def show(self, name: str, state: torch.Tensor) -> torch.Tensor:
        return state

    def is_cut(self, name: str) -> bool:
        """Whether a rank has a range of the state, as of the parameter."""
        whole = self.whole.get(name)
        return whole is not None and whole.has_dims_of(self.param)

    def hide(self, name: str, state):
        """A whole state, as torch.optim's and ``full_state_dict`` have it, is cut."""
        if not isinstance(state, torch.Tensor) or not self.is_cut(name):
            return state
        if state.shape == self.local.shape:
            return state
        if state.shape == self.param.shape:
            return self._cut(state).clone()
        raise errors.TensorError(
            f"state '{name}' of {self.name} has shape {tuple(state.shape)}, expected "
            f"{tuple(self.param.shape)}, or {tuple(self.local.shape)} for this rank's part",
            "STEPC_SHAPE_MISMATCH",
        )


class ZeroLine:
    """All parameters of one dtype as one line of elements, cut evenly over a group."""

    def __init__(self, params: list[tuple[torch.Tensor, str]], group: dist.ProcessGroup):
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        sizes = [param.numel() for param, _ in params]
        starts = list(itertools.accumulate(sizes, initial=0))
        self.length = -(-starts[-1] // (self.world * _UNIT)) * _UNIT
        low, high = self.rank * self.length, (self.rank + 1) * self.length
        self.parts: list[ZeroPart] = []
        for (param, name), start, size in zip(params, starts, sizes, strict=False):
            begin = min(max(low - start, 0), size)
            end = min(max(high - start, begin), size)
            self.parts.append(ZeroPart(param, begin, end, name))
        self._starts, self._low = starts, low
        self._dtype = params[0][0].dtype
        self._buffers: dict[str, torch.Tensor] = {}

    def _buffer(self, name: str) -> torch.Tensor:
        """The whole line, in memory that is kept from step to step; zeros at first."""
        if name not in self._buffers:
            self._buffers[name] = torch.zeros(self.world * self.length, dtype=self._dtype)
        return self._buffers[name]

    # --- Gradients ------------------------------------------------------------

    def reduce(self) -> None:
        """The mean over ranks of their own gradients, of this rank's elements.

        Summed in f32 in the order of the ranks, so that every run gives the same bits; a
        gradient that only some ranks have counts as zero on the others.
        """
        present = torch.tensor([p.param.grad is not None for p in self.parts], dtype=torch.int32)
        dist.all_reduce(present, dist.ReduceOp.MAX, group=self.group)
        dtype, sent, received = self._dtype, self._buffer("sent"), self._buffer("whole")
        for part, start in zip(self.parts, self._starts, strict=False):
            place = sent[start : start + part.param.numel()]
            if part.param.grad is None:
                place.zero_()
            else:
                place.copy_(part.param.grad.reshape(-1))
        # As bytes: not every backend knows all dtypes.
        dist.all_to_all_single(received.view(torch.uint8), sent.view(torch.uint8), group=self.group)
        wide = torch.promote_types(dtype, torch.float32)
        rows = received.view(self.world, self.length)
        total = torch.zeros(self.length, dtype=wide)
        for row in rows:
            total += row
        mean = (total / self.world).to(dtype)
        for part, start, any_rank in zip(self.parts, self._starts, present.tolist(), strict=False):
            part.local.grad = None
            if any_rank:
                at = start + part.begin - self._low
                part.local.grad = mean[at : at + part.local.numel()]

    def check_equal(self) -> None:
        """TensorError where ranks have other gradients, which are said to be reduced.

        Compares a checksum of the bits, and that all ranks have one.
        """
        sums = torch.stack([_checksum(part.param.grad) for part in self.parts])
        ends = torch.cat([sums, -sums])
        dist.all_reduce(ends, dist.ReduceOp.MAX, group=self.group)
        high, low = ends.view(2, -1)
        for part, same in zip(self.parts, (high == -low).tolist(), strict=True):
            if not same:
                raise errors.TensorError(
                    f"the gradient of {part.name} is another one on some ranks, but "
                    "gradients='reduced' says that all have the same; gradients='local' takes "
                    "the mean",
                    "STEPC_INVALID_ARGUMENT",
                )

    # --- States ---------------------------------------------------------------

    def full(self, states: dict[int, dict]) -> None:
        """Puts whole states in place of this rank's parts: all ranks together.

        ``states``: by ``id()`` of the parameter; all ranks have the same names.
        """
        names = dict.fromkeys(
            name for part in self.parts for name in states.get(id(part.param), {})
            if part.is_cut(name)
        )  # fmt: skip
        for name in names:
            holders = [
                p for p in self.parts if p.is_cut(name) and name in states.get(id(p.param), {})
            ]
            dtype = states[id(holders[0].param)][name].dtype
            own = torch.zeros(self.length, dtype=dtype)
            starts = dict(zip(map(id, self.parts), self._starts, strict=False))
            for part in holders:
                at = starts[id(part)] + part.begin - self._low
                own[at : at + part.local.numel()].copy_(states[id(part.param)][name].reshape(-1))
            whole = torch.empty(self.world * self.length, dtype=dtype)
            whole.view(self.world, -1)[self.rank] = own
            self._share(whole)
            for part in holders:
                at, shape = starts[id(part)], part.param.shape
                states[id(part.param)][name] = whole[at : at + shape.numel()].view(shape).clone()

    # --- Parameters -----------------------------------------------------------

    def gather(self) -> None:
        """Gives every rank the new parameters of all ranks, in their own dtype."""
        line = self._buffer("whole")
        own = line.view(self.world, -1)[self.rank]
        for part, start in zip(self.parts, self._starts, strict=False):
            at = start + part.begin - self._low
            own[at : at + part.local.numel()].copy_(part.local.detach())
        self._share(line)
        for part, start in zip(self.parts, self._starts, strict=False):
            if part.local.grad is not None:
                whole = line[start : start + part.param.numel()]
                part.param.detach().copy_(whole.view(part.param.shape))

    def _share(self, line: torch.Tensor) -> None:
        """Puts every rank's part of a line into that of all: all ranks together."""
        parts = line.view(self.world, -1).view(torch.uint8)
        if dist.get_backend(self.group) != "gloo":
            dist.all_gather_single(
                line.view(torch.uint8), parts[self.rank].clone(), group=self.group
            )
            return
        # A third of the time of Gloo's all_gather, which goes round in a ring.
        works = [
            dist.broadcast(
                part, dist.get_global_rank(self.group, rank), group=self.group, async_op=True
            )
            for rank, part in enumerate(parts)
        ]
        for work in works:
            work.wait()


def _checksum(grad: torch.Tensor | None) -> torch.Tensor:
    """Of the bits in their places; another one for no gradient."""
    if grad is None:
        return torch.tensor(-1, dtype=torch.int64)
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = grad.detach().contiguous().view(-1).view(kinds[grad.element_size()]).to(torch.int64)
    odd = 2 * torch.arange(bits.numel(), dtype=torch.int64) + 1
    # Kept below 2^62, so that its negative is there too.
    return ((bits * odd).sum() & (2**62 - 1)).reshape(())


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Says which collective it was that failed, for whatever reason the backend has."""
    try:
        yield
    except errors.StepcError:
        raise
    except (RuntimeError, ValueError) as error:
        raise errors.CommunicationError(f"{what}: {error}", "STEPC_COMMUNICATION_ERROR") from error


class Zero:
    """The lines of an optimizer."""

    def __init__(self, lines: list[ZeroLine], how: ZeroSettings):
        self._how = how
        self.lines = lines
        self._parts = {id(p.param): p for line in self.lines for p in line.parts}
        self._checked = False

    @classmethod
    def of(cls, named: list[tuple[torch.Tensor, str]], how: ZeroSettings) -> Zero:
        """One line for each dtype."""
        check_dense(named)
        lines = defaultdict(list)
        for param, name in named:
            lines[param.dtype].append((param, name))
        return cls([ZeroLine(params, how.group) for params in lines.values()], how)

    def part_of(self, param: torch.Tensor) -> ZeroPart:
        return self._parts[id(param)]

    def refresh(self, always_check: bool) -> None:
        """Gives every part its gradient: all ranks together."""
        for line in self.lines:
            if self._how.local_gradients:
                with _named("the gradients could not be reduced"):
                    line.reduce()
            elif not self._checked or always_check:
                with _named("the gradients could not be compared"):
                    line.check_equal()
        self._checked = True

    def gather(self) -> None:
        with torch.no_grad(), _named("the parameters could not be gathered"):
            for line in self.lines:
                line.gather()

    def full(self, states: dict[int, dict]) -> None:
        with torch.no_grad():
            for line in self.lines:
                line.full(states)
