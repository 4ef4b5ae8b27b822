# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks must have alike in each step: hyper-parameters, options, kept scalars, which
parameters are frozen, counts of steps. A digest of it goes with the first thing that a step
exchanges, at no call of its own; what differs, and on which ranks, is asked for where digests do.

A digest has 62 bits, so that two ranks that differ have the same with a probability of 2^-62.
How it travels decides nothing: none of the three ways can cancel.

- :func:`maxima`: that over ranks of it and of its negative. With 5, 5 and 7 they are 7 and
  -5, and no two numbers are alike unless all are.
- :func:`addends`: where all that crosses is a sum of floats, as 124 elements, for each bit 1 and
  0, or 0 and 1. Where ranks have the same bit one of both sums is zero, which a sum of numbers
  that are not negative is only where each is: in any type, over any number of ranks.
- as it is, where every rank gets that of every other.
"""

from __future__ import annotations

import hashlib
import marshal
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from ... import errors
from ...interface import describe_options
from ..binding.groups import settings_of
from ..binding.hypers import HyperReader
from ..tensors.members import named_parameters
from ..tensors.patterns import KEY as VIEW
from .agreement import difference
from .exchanges import exchanging, gathered, host_group, within
from .shared_memory import all_reduce

_BITS = 62  # so that the negative is an int64, too
_PIECE = 1 << 16  # elements of which a checksum is made at a time
COMPARING = "what ranks step with could not be compared"
ADDENDS = 2 * _BITS


class Facts(NamedTuple):
    """Plain values, and a function that has the same in words, one item for each."""

    values: tuple
    words: Callable[[], list[str]]

    def also(self, values, words: Callable[[], list[str]]) -> Facts:
        return Facts((*self.values, values), lambda: [*self.words(), *words()])

    def digest(self) -> int:
        """The same in every process."""
        return digest_of(self.values)


def digest_of(values) -> int:
    """Of plain values. Version 2 of marshal knows no references, which are of a process."""
    text = hashlib.blake2b(marshal.dumps(values, 2), digest_size=8).digest()
    return int.from_bytes(text, "little") >> (64 - _BITS)


def of_groups(optimizer, interface, reader, scalars: dict) -> Facts:
    """Hyper-parameters and options of each group, and scalars that are kept."""
    groups = list(optimizer.param_groups)
    hypers = tuple(reader.read(optimizer, n, group) for n, group in enumerate(groups))
    settings = tuple(settings_of(optimizer, group) for group in groups)
    owner = weakref.ref(optimizer)  # which has what keeps these facts

    def words() -> list[str]:
        found = [
            f"{name}={value!r} of group {number}"
            for number, own in enumerate(hypers)
            for name, value in zip(interface.hyper_names, own, strict=True)
        ]
        found += [
            f"{describe_options(owner()._read_options(group)) or 'no options'} of group {number}"
            for number, group in enumerate(groups)
        ]
        found += [f"view {group.get(VIEW)!r} of group {n}" for n, group in enumerate(groups)]
        return found + [f"scalar {name}={value!r}" for name, value in scalars.items()]

    return Facts((hypers, settings, tuple(scalars.items())), words)


def frozen(facts: Facts, parts: list) -> Facts:
    """With which of the parameters are frozen."""
    trained = [bool(part.param.requires_grad) for part in parts]
    return facts.also(
        bytes(trained),
        lambda: [
            f"{part.name} {'trained' if on else 'frozen'}"
            for part, on in zip(parts, trained, strict=True)
        ],
    )


def with_gradients(facts: Facts, params: list, names: list[str]) -> Facts:
    """With which of the parameters have a gradient, where that must be alike."""
    there = [param.grad is not None for param in params]
    return facts.also(
        bytes(there),
        lambda: [
            f"{name} {'with a gradient' if on else 'without a gradient'}"
            for name, on in zip(names, there, strict=True)
        ],
    )


def with_steps(facts: Facts, parts: list, state) -> Facts:
    """With how many steps the parameters have taken, as their states say."""
    steps = [float(state.get(part.param, {}).get("step", 0)) for part in parts]
    return facts.also(
        tuple(steps),
        lambda: [f"{p.name} after {n:g} steps" for p, n in zip(parts, steps, strict=True)],
    )


# --- On the way -----------------------------------------------------------------


def maxima(
    numbers: list[int], facts: Facts, group: dist.ProcessGroup, what: str
) -> tuple[list[int], bool]:
    """The largest of each number over ranks, and whether all of them have the same facts, by one
    call. ``group``: one for hosts. CommunicationError: ``what`` could not be done."""
    digest = facts.digest()
    words = torch.tensor([*numbers, digest, -digest], dtype=torch.int64, device="cpu")
    with exchanging(what, group):
        all_reduce(words, dist.ReduceOp.MAX, group)
    *found, high, low = words.tolist()
    return found, high == -low


def addends(facts: Facts) -> torch.Tensor:
    """Elements of a sum over ranks, of :data:`ADDENDS`."""
    digest = facts.digest()
    bits = [digest >> n & 1 for n in range(_BITS)]
    return torch.tensor([*bits, *(1 - bit for bit in bits)], dtype=torch.int64, device="cpu")


def same_addends(sums: torch.Tensor) -> bool:
    one, other = sums.view(2, _BITS)
    return bool(((one == 0) | (other == 0)).all())


# --- A difference ---------------------------------------------------------------


def compare(facts: Facts, group: dist.ProcessGroup, device: torch.device) -> None:
    """That all ranks of the group have the same, by a call of its own. DisagreementError."""
    group = host_group(group, device)
    if not maxima([], facts, group, COMPARING)[1]:
        refuse(facts, [group], device)


def refuse(facts: Facts, groups: list[dist.ProcessGroup], device: torch.device, kind=None) -> None:
    """Says what differs, as all ranks of the groups have found that something does: all of them
    together. ``kind`` of error; by default DisagreementError, which says that nothing changed."""
    own, others = facts.words(), {}
    for group in groups:
        every = gathered(own, "what differs could not be compared", group, device)
        others |= dict(zip(dist.get_process_group_ranks(group), every, strict=True))
    others = {rank: words for rank, words in others.items() if words != own}
    if not others:
        words = "ranks have stepped from another state, or another number of times"
        raise (kind or errors.DisagreementError)(words, "STEPC_COMMUNICATION_ERROR")
    first = next(iter(others.values()))
    raise difference(own, first, [r for r, words in others.items() if words == first], kind)


# --- Replicas -------------------------------------------------------------------


def checksum(tensor: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Of the bits in their places; another one for no tensor. It takes little memory, however
    large the tensor is."""
    if tensor is None:
        return torch.full((), -1, dtype=torch.int64, device=device)
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds.get(tensor.element_size(), torch.int8)
    bits = tensor.detach().contiguous().view(-1).view(kind)
    odd = 2 * torch.arange(min(_PIECE, bits.numel()), dtype=torch.int64, device=device) + 1
    found = torch.zeros((), dtype=torch.int64, device=device)
    for number, piece in enumerate(bits.split(_PIECE)):
        places = odd[: piece.numel()] + 2 * _PIECE * number
        found += (piece * places).sum()
    # Kept below 2^62, so that its negative is there too.
    return found & (2**62 - 1)


def kept_scalars(optimizer, interface, binding) -> dict:
    """What a step is to begin with: what the binding has, or what a new one would begin with."""
    if binding is not None:
        return binding.scalars()
    known, size = optimizer._initial_scalars(interface), len(optimizer.param_groups)
    found = {}
    for scalar in interface.scalars:
        value = known.get(scalar.name, scalar.default)
        if scalar.scope == "group":
            own = value if isinstance(value, list) else [value] * size
            value = [*own[:size], *[scalar.default] * (size - len(own))]
        found[scalar.name] = value
    return found


def compare_replicas(optimizer, binding, group: dist.ProcessGroup | None) -> None:
    """That ranks which are to have the same parameters, without a word of it to the optimizer, are
    about to take the same step: all ranks together. DisagreementError."""
    definition = optimizer._get_definition()
    interface = definition.interface()
    scalars = kept_scalars(optimizer, interface, binding)
    facts = of_groups(optimizer, interface, HyperReader(optimizer, interface), scalars)
    parts = [Replica(param, name) for name, param in named_parameters(optimizer.param_groups)]
    facts = facts.also(definition.digest(), lambda: [f"definition '{interface.name}'"])
    facts = frozen(facts, parts)
    facts = with_gradients(facts, [part.param for part in parts], [part.name for part in parts])
    facts = with_steps(facts, parts, optimizer.state)
    sums = [int(checksum(part.param, part.param.device)) for part in parts]
    kinds = [f"{part.param.dtype} of shape {tuple(part.param.shape)}" for part in parts]
    facts = facts.also(
        (tuple(kinds), tuple(sums)),
        lambda: [
            f"{part.name}, {kind}, checksum {own:x}"
            for part, kind, own in zip(parts, kinds, sums, strict=True)
        ],
    )
    device = parts[0].param.device if parts else torch.device("cpu")
    with within(optimizer._timeout):
        compare(facts, group or dist.group.WORLD, device)


class Replica(NamedTuple):
    param: torch.Tensor
    name: str
