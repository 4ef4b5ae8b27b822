# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ZeRO by its arguments, checked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields

import torch
import torch.distributed as dist

from .... import errors
from ...._describe import choose_owners
from ...._mesh import BUCKET_BYTES, Entry
from ...tensors.callers import level_of_caller
from ...tensors.dlpack import STORAGE
from ..shared_memory import shared_group
from .flat import FlatMemory

# Of parameters that are gathered in memory that ranks share: a call costs little there, and what
# is received lies beside the parameters until it is copied.
_SHARED_GATHER_BYTES = 2 * 2**20
_REDUCE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Zero:
    """ZeRO over plain parameters: ``zero=Zero(...)`` of any optimizer. Each rank keeps of every
    state its part of the elements, steps that part, and the ranks put the parameters together
    (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
    SC 2020).

    Args:
        stage: 1, or 2, which reduces gradients during the backward pass, keeps this rank's part
            of their sum in f32 and frees ``.grad``.
        gradients: "reduced" where all ranks have the same, as after DistributedDataParallel;
            "local" where each has its own, whose mean is taken. Stage 1 has no default; stage 2
            has "local" alone.
        process_group: the ranks, each of which has the same parameters; by default all.
        bucket_bytes: of what is exchanged at a time; by default 25 MiB, or one parameter.
        reduce_bucket_bytes: the same of gradients alone, which is also what is stepped together.
        gather_bucket_bytes: of parameters alone; by default 2 MiB where ranks share memory.
        reduce_dtype: in which gradients cross ranks: torch.bfloat16, torch.float16 or
            torch.float32; by default their own. They are added up in f32 in any case.
        predivide: divides by the number of ranks before the sum, and not after it.
        overlap: whether exchanges of one bucket go on while another is stepped.
        flatten_parameters: points ``.data`` of the parameters into the buffers in which they are
            gathered, so that nothing is copied in and out.

    What does not fit together, the optimizer refuses: ValueError.
    """

    stage: int = 1
    gradients: str | None = None
    process_group: dist.ProcessGroup | None = None
    bucket_bytes: int | None = None
    reduce_bucket_bytes: int | None = None
    gather_bucket_bytes: int | None = None
    reduce_dtype: torch.dtype | None = None
    predivide: bool = False
    overlap: bool = True
    flatten_parameters: bool = False

    def arguments(self) -> dict:
        """The same as arguments of an optimizer, which is how they were given before."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        stage = given.pop("stage")
        if stage == 2 and self.gradients is None:
            given["gradients"] = "local"
        return {"zero": stage, **given}


# Arguments that stood beside ``zero`` before there was Zero, with their defaults.
ARGUMENTS = {field.name: field.default for field in fields(Zero) if field.name != "stage"}


class Frozen:
    """Which parameters were frozen when they were cut first. They have no states, and are cut
    alone, so that what ranks have of the others does not depend on them, then or later."""

    def __init__(self):
        self._known: dict[int, bool] = {}  # by id() of parameters, which the optimizer keeps

    def was(self, param: torch.Tensor) -> bool:
        return self._known.setdefault(id(param), not param.requires_grad)


class ChosenOwners:
    """Which rank steps each parameter that is not cut, by what steps of them cost. It stays, as it
    has the states, whatever options become of a group, and whatever parameters are added."""

    def __init__(self):
        self._known: dict[int, int] = {}  # by id() of parameters, which the optimizer keeps
        self._loads: list[float] = []

    def settle(self, costs: dict[int, float], ranks: int) -> None:
        """Chooses for parameters, by ``id()``, that have no owner yet."""
        self._loads = self._loads or [0.0] * ranks
        fresh = [number for number in costs if number not in self._known]
        owners = choose_owners([costs[number] for number in fresh], self._loads)
        self._known.update(zip(fresh, owners, strict=True))

    def of(self, param: torch.Tensor) -> int | None:
        return self._known.get(id(param))


@dataclass(frozen=True)
class ZeroSettings:
    """What a :class:`Zero` says, checked, and with the defaults that depend on each other."""

    group: dist.ProcessGroup
    local_gradients: bool
    stage: int
    reduce_bytes: int  # of what is reduced and stepped together, at most, or one parameter
    gather_bytes: int | None  # of what is gathered together, where the user says
    reduce_dtype: torch.dtype | None
    predivide: bool
    overlap: bool
    flat: FlatMemory | None  # in which the parameters lie
    frozen: Frozen  # those that are cut alone
    owners: ChosenOwners  # of those that are not cut
    in_backward: bool = False  # whether steps are made as gradients come

    @property
    def takes_as_they_come(self) -> bool:
        """Whether gradients leave during the backward pass."""
        return self.stage == 2 or self.in_backward

    @property
    def world(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    def gathered_at_once(self, device: torch.device) -> int:
        """Bytes of what a plan on the device gathers together. All ranks call it together, and
        ask for the memory that they share whatever they were given."""
        shares = device.type == "cpu" and shared_group(self.group) is not None
        if self.gather_bytes is None and shares and self.flat is None:
            return _SHARED_GATHER_BYTES
        return self.gather_bytes or BUCKET_BYTES

    def entry(self, dtype: torch.dtype, axis: str, owner: int | None = None) -> Entry:
        """How a parameter of the dtype comes to a step, where ``axis`` is the group's: cut, or
        all of it to the ``owner``."""
        if not self.local_gradients:
            return Entry((axis,), owner=owner)
        wire = STORAGE[self.reduce_dtype or dtype]
        return Entry((axis,), (axis,), float(self.world), self.predivide, wire, owner)

    def __str__(self) -> str:
        words = [
            f"zero={self.stage}",
            f"gradients='{'local' if self.local_gradients else 'reduced'}'",
        ]
        if self.reduce_bytes == self.gather_bytes:
            words.append(f"bucket_bytes={self.reduce_bytes}")
        else:
            words.append(f"reduce_bucket_bytes={self.reduce_bytes}")
            # It is another size than the same given: see gathered_at_once.
            words.append(f"gather_bucket_bytes={self.gather_bytes or 'default'}")
        if self.reduce_dtype is not None:
            words.append(f"reduce_dtype={self.reduce_dtype}")
        words += ["predivide=True"] * self.predivide
        words += ["overlap=False"] * (not self.overlap)
        words += ["flatten_parameters=True"] * (self.flat is not None)
        words += ["stepped in the backward pass"] * self.in_backward
        return ", ".join(words)

    def __reduce__(self):
        raise errors.StepcError(
            "an optimizer with zero cannot be copied or pickled: its process group cannot; "
            "save its state_dict"
        )


_told_of_arguments = False


def one_by_one(given: dict) -> dict:
    """The arguments of an optimizer that are about ranks, those in a :class:`Zero` one by one.
    Says once in a process that they were given so. ValueError for one that is given twice."""
    global _told_of_arguments
    zero = given.get("zero", 0)
    own = {name: value for name, value in given.items() if name in ARGUMENTS}
    if isinstance(zero, Zero):
        twice = [name for name, value in own.items() if value != ARGUMENTS[name]]
        if twice:
            raise ValueError(f"{twice[0]} is given beside zero=Zero(...), which has it")
        return {**given, **zero.arguments()}
    if not isinstance(zero, bool) and zero in (1, 2) and not _told_of_arguments:
        _told_of_arguments = True
        words = [f"{name}={value!r}" for name, value in own.items()]
        warnings.warn(
            f"stepc: zero={zero} with {', '.join(words) or 'nothing else'} is now written "
            f"zero=stepc.torch.Zero({', '.join([str(zero), *words])}); the arguments one by one "
            "will go",
            FutureWarning,
            stacklevel=level_of_caller(),
        )
    return given


_SHARED_PARAMETERS = (
    "; stage 3, as ColossalAI's Gemini, shares parameters too: call torch's fully_shard(model) and "
    "give the optimizer what it makes of them"
)


def settings(
    zero: int, process_group=None, reduce_dtype=None, in_backward: bool = False, **more
) -> ZeroSettings | None:
    """Checks the arguments; None where states are not sharded. ValueError. ``in_backward``: with
    ``fused_backward``; ``more``: of :data:`ARGUMENTS`."""
    given = ARGUMENTS | more
    if isinstance(zero, bool) or zero not in (0, 1, 2):
        more = _SHARED_PARAMETERS if zero in (3, "gemini", "Gemini") else ""
        raise ValueError(f"zero is {zero!r}, expected stepc.torch.Zero(1, ...) or Zero(2){more}")
    if zero == 0:
        for name, value in {**given, "process_group": process_group}.items():
            if value != ARGUMENTS[name]:
                raise ValueError(f"{name} is of no use without zero=Zero(...)")
        return None
    _check_gradients(zero, given)
    line, gather = _bucket_bytes(given)
    if not dist.is_initialized():
        raise ValueError(f"zero={zero} needs torch.distributed.init_process_group before it")
    return ZeroSettings(
        process_group if process_group is not None else dist.group.WORLD,
        given["gradients"] == "local",
        zero,
        line,
        gather,
        reduce_dtype,
        bool(given["predivide"]),
        bool(given["overlap"]),
        FlatMemory() if given["flatten_parameters"] else None,
        Frozen(),
        ChosenOwners(),
        in_backward,
    )


def _check_gradients(zero: int, given: dict) -> None:
    gradients = given["gradients"]
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
    for name in ("predivide", "reduce_bucket_bytes"):
        if gradients == "reduced" and given[name]:
            raise ValueError(f"{name} is of no use with gradients='reduced': none is reduced here")


def _bucket_bytes(given: dict) -> tuple[int, int | None]:
    """Of what is reduced, and of what is gathered; None where that is not said."""
    for name in ("bucket_bytes", "reduce_bucket_bytes", "gather_bucket_bytes"):
        if given[name] is not None and given[name] < 1:
            raise ValueError(f"{name} is {given[name]}, expected a positive number")
    told = given["gather_bucket_bytes"] or given["bucket_bytes"]
    gather = told or BUCKET_BYTES
    # Where nothing is reduced, what is gathered is what is stepped together.
    reduce = given["reduce_bucket_bytes"] or given["bucket_bytes"] or BUCKET_BYTES
    if given["gradients"] == "reduced":
        reduce = gather
    if given["flatten_parameters"] and gather > reduce:
        raise ValueError(
            f"gather_bucket_bytes is {gather} and reduce_bucket_bytes {reduce}: with "
            "flatten_parameters=True a bucket is gathered where its parameters lie, and not with "
            "others in one buffer"
        )
    return reduce, told


def check_reduce_dtype(dtype) -> None:
    """ValueError for what gradients cannot cross ranks in."""
    if dtype is not None and dtype not in _REDUCE_DTYPES:
        raise ValueError(
            f"reduce_dtype is {dtype!r}, expected torch.bfloat16, torch.float16 or torch.float32"
        )
