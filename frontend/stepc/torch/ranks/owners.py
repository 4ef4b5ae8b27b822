# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that lie on ranks in a way that their rule cannot have: one rank, the owner,
steps the whole tensor.

Before a step the parts of such parameters, with their gradients and states, go to their
owners, all in one exchange of the ranks that have parts; behind it the new parts come back in
another. So states stay parts to the user, and to checkpoints. To the plan the tensor is whole
on the owner, and no tensor on the others. What crosses of a tensor has a fixed size, whether
there is a gradient or not; where any rank has one, it counts as zero on the others.
"""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist

from ..._describe import choose_owners
from ..binding.codes import drop_scales
from ..binding.groups import rules_of
from ..binding.rules import Rules
from ..tensors.callers import level_of_caller
from ..tensors.dlpack import set_grad
from ..tensors.members import ObstacleError
from . import alike as _alike
from .exchanges import exchanging, gathered
from .messages import Reader, aligned, exchange, pack
from .owned_part import Indices, OwnedPart, numel, put, seen_of, take
from .owned_rows import OwnedRows

_HEAD = 2  # numbers before the tensors of a parameter
_COMPARING = "the parts could not be compared"
_OWN_DTYPE, _WIDE = 1, 2  # of a gradient that is there


def why_owned(optimizer, rules: Rules, number: int, part) -> str | None:
    """Why the rule, or what rounds its results, cannot have a resolved part of the group, in
    words and with the place in the definition; None where it can, or where no rule takes it."""
    layout = part.layout
    if layout is None or layout.flat or not layout.sharded or part.whole_shape is None:
        return None
    found = rules.find(number, part.whole_shape, layout)
    rule, dim = found.rule, found.cut_dim
    if (seen := seen_of(part)) is not None:
        if seen.blocks is not None:
            if part.blocks is not None:
                return None
            return f"it is stepped as several tensors by {seen.view}, and it is cut"
        wanted = rules.find(number, seen.shape(part.whole_shape)).rule
        if wanted is None or wanted.dims != ("*",) or wanted != rule:
            return f"its rule has the whole in {seen.view}, and it is cut"
    if rule is None:
        return None
    if dim is not None:
        has = "has a dim of 1" if dim == "1" else f"has dim '{dim}' twice"
        if rule.needs_matrices:
            has = "needs whole matrices"
        path = optimizer._get_definition().path
        return f"rule '{rule.name}' ({path}:{rule.line}:{rule.column}) {has}, and it is cut"
    if layout.start is None and optimizer._kept.rounds(part.param.dtype):
        return "rounding='stochastic' is of places, and its rows alternate with other ranks'"
    return None


def find_owned(optimizer, groups: list[list]) -> list[OwnedPart]:
    """Those of the resolved parts that an owner has to step, in their order. ObstacleError for
    one on a device: messages are in the host's memory."""
    rules = rules_of(optimizer)
    found = []
    for number, parts in enumerate(groups):
        for part in parts:
            if optimizer._shards is not None:
                _check_master(rules, number, part)
            if (why := why_owned(optimizer, rules, number, part)) is not None:
                if part.local.device.type != "cpu":
                    raise ObstacleError(
                        f"{part.name} is on device '{part.local.device}', and {why}; an owner "
                        "steps what is on 'cpu' alone",
                        True,
                    )
                axes = tuple(axis for _, names in part.layout.dims for axis in names)
                owned = OwnedPart(part, number, axes, why)
                owned.cost = sum(rules.find(number, shape).cost for shape in owned.block_shapes)
                found.append(owned)
    return found


def _check_master(rules: Rules, number: int, part) -> None:
    """ObstacleError for a range of a matrix, as ColossalAI's ZeRO puts it into a group, of which
    the rule needs the whole."""
    if getattr(part, "axis", None) is None or part.whole_shape is None:
        return
    rule = rules.find(number, part.whole_shape).rule
    if rule is not None and rule.needs_matrices:
        raise ObstacleError(
            f"{part.name} is {part.place}, as ColossalAI's ZeRO has cut it, and rule '{rule.name}' "
            "needs whole matrices; use zero=Zero(1, ...) or Zero(2) of this optimizer in its place",
            False,
        )


class _Among:
    """The parameters that are cut over the same axes, and what their ranks exchange."""

    def __init__(self, parts: list[OwnedPart], group: dist.ProcessGroup, device: torch.device):
        self.parts, self.group, self._device = parts, group, device
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self._received: list[torch.Tensor] = []

    def settle(self, before: _Among | None) -> None:
        """Finds where the parts of all ranks lie, which they tell each other unless they have
        before, and spreads the tensors over owners, by what steps of them cost. Owners stay, as
        they have memory, whatever options have become of the group's."""
        own = [(part.shape, part.own) for part in self.parts]
        if before is None:
            every = gathered(own, _COMPARING, self.group, self._device)
        else:
            every = [[(p.shape, p.at[r]) for p in before.parts] for r in range(self.world)]
        if before is None:
            owners = choose_owners([part.cost for part in self.parts], [0.0] * self.world)
        else:
            owners = [part.owner for part in before.parts]
        for number, (part, owner) in enumerate(zip(self.parts, owners, strict=True)):
            at: list[Indices] = [of_rank[number][1] for of_rank in every]
            part.assign(owner, self.rank, at, None if before is None else before.parts[number])

    def is_as(self, other: _Among) -> bool:
        """Whether an earlier binding has the same parts of the same parameters."""
        return len(self.parts) == len(other.parts) and all(
            own.param is its.param and own.own == its.own and own.layout == its.layout
            for own, its in zip(self.parts, other.parts, strict=True)
        )

    def owned_by(self, rank: int) -> list[OwnedPart]:
        return [part for part in self.parts if part.owner == rank]

    # --- To the owners ----------------------------------------------------------

    def bring(self, facts: _alike.Facts | None) -> None:
        """Sends this rank's parts to their owners, behind a digest of the facts that all are to
        have alike; DisagreementError."""
        messages = []
        digest = 0 if facts is None else facts.digest()
        for owner in range(self.world):
            line = [torch.tensor([digest, 0], dtype=torch.int64, device="cpu")]
            for part in self.owned_by(owner):
                line += _sent(part)
            messages.append(pack(line))
        head = aligned(8 * _HEAD)
        sizes = [head + sum(_there(part, rank) for part in self.owned_by(self.rank))
                 for rank in range(self.world)]  # fmt: skip
        received = exchange(messages, sizes, self.group)
        if any(Reader(message).numbers(_HEAD)[0] != digest for message in received):
            _alike.refuse(facts, [self.group], self._device)
        self._received = [message[head:] for message in received]
        # What a message has, whatever a new binding has in its place when it is read.
        self._slots = {id(part): list(part.slots) for part in self.owned_by(self.rank)}

    def deliver(self, states_of) -> None:
        """Gives the plan's tensors of this owner what has come. ``states_of`` gives those that
        the plan has beside a tensor, by name."""
        owned = self.owned_by(self.rank)
        kinds: dict[int, list[int]] = {id(part): [] for part in owned}
        grads = {id(part): torch.zeros(part.shape, dtype=part.wide, device="cpu") for part in owned}
        for rank, message in enumerate(self._received):
            reader = Reader(message)
            for part in owned:
                kind, present = reader.numbers(_HEAD)
                at = part.at[rank]
                _put_where_other(part.whole, at, reader.tensor(part.param.dtype, numel(at)))
                own = reader.tensor(part.wide, numel(at))
                put(grads[id(part)], at, own)
                kinds[id(part)].append(kind)
                states = states_of(part)
                for bit, slot in enumerate(self._slots[id(part)]):
                    value = reader.tensor(slot.dtype, numel(slot.at(at)))
                    if present >> bit & 1 and slot.name in states:
                        put(states[slot.name].view(slot.whole.shape), slot.at(at), value)
        for part in owned:
            grad = _taken_gradient(part, kinds[id(part)], grads[id(part)])
            set_grad(part.local, None if grad is None else grad.view(part.layout.shape))

    # --- And back -----------------------------------------------------------------

    def send_back(self, states_of, count_of) -> None:
        """Sends what this owner has stepped, and takes what others have."""
        messages = []
        owned = self.owned_by(self.rank)
        for rank in range(self.world):
            line = []
            for part in owned:
                stepped = part.local.grad is not None
                line.append(
                    torch.tensor(
                        [int(stepped), count_of(part) if stepped else 0],
                        dtype=torch.int64,
                        device="cpu",
                    )
                )
                at, states = part.at[rank], states_of(part)
                line.append(take(part.whole, at))
                whole = [(states[s.name].view(s.whole.shape), s.at(at)) for s in part.slots]
                line += [take(*own) for own in whole]
            messages.append(pack(line))
        sizes = [sum(_back(part, self.rank) for part in self.owned_by(owner))
                 for owner in range(self.world)]  # fmt: skip
        for owner, message in enumerate(exchange(messages, sizes, self.group)):
            reader = Reader(message)
            for part in self.owned_by(owner):
                self._take_back(part, reader)

    def _take_back(self, part: OwnedPart, reader: Reader) -> None:
        stepped, part.count = reader.numbers(_HEAD)
        part.stepped = bool(stepped)
        new = reader.tensor(part.param.dtype, numel(part.own))
        values = [reader.tensor(*piece) for piece in part.pieces(self.rank)]
        if not part.stepped:
            return
        local = part.held.detach()
        local.copy_(new.view(local.shape))
        part.made = part.make_missing()
        for slot, value in zip(part.slots, values, strict=True):
            own = part.parts[slot.name]
            own.copy_(value.view(own.shape))
        if not part.is_shared and part.inner.local.grad is None:  # other ranks had one
            set_grad(part.inner.local, torch.zeros_like(local))


def _sent(part: OwnedPart) -> list[torch.Tensor]:
    """What a rank sends of its part."""
    local, grad = part.held.detach(), part.gradient
    kind = 0 if grad is None else _OWN_DTYPE if grad.dtype == local.dtype else _WIDE
    present = sum(1 << bit for bit, slot in enumerate(part.slots) if slot.name in part.parts)
    wide = (
        torch.zeros(local.shape, dtype=part.wide, device="cpu")
        if grad is None
        else grad.to(part.wide)
    )
    line = [torch.tensor([kind, present], dtype=torch.int64, device="cpu"), local, wide]
    for slot in part.slots:
        shape = [len(own) for own in slot.at(part.own)]
        line.append(part.parts.get(slot.name, torch.zeros(shape, dtype=slot.dtype, device="cpu")))
    return line


def _taken_gradient(part: OwnedPart, kinds: list[int], grad: torch.Tensor):
    """The whole gradient, in the parameter's dtype where all that are there have it; None where
    no rank has one."""
    kind = max(kinds)
    if not kind:
        return None
    return grad.to(part.param.dtype) if kind == _OWN_DTYPE else grad


def _put_where_other(whole: torch.Tensor, at: Indices, part: torch.Tensor) -> None:
    """Writes a part where it has changed: a write says that somebody has written the
    parameter."""
    whole = whole.detach()
    own = take(whole, at).contiguous()
    if not torch.equal(own.view(-1).view(torch.uint8), part.view(torch.uint8)):
        put(whole, at, part)


# --- Sizes ---------------------------------------------------------------------


def _there(part: OwnedPart, rank: int) -> int:
    """The bytes of what a rank sends of its part."""
    return _back(part, rank) + aligned(numel(part.at[rank]) * part.wide.itemsize)


def _back(part: OwnedPart, rank: int) -> int:
    """And of what it gets."""
    states = sum(aligned(dtype.itemsize * size) for dtype, size in part.pieces(rank))
    own = aligned(numel(part.at[rank]) * part.param.dtype.itemsize)
    return aligned(8 * _HEAD) + own + states


class Owners:
    """The parameters of an optimizer that owners step."""

    def __init__(self, parts: list[OwnedPart], mesh, before: Owners | None, zero=None):
        self.parts = parts
        # Of what zero has cut the plan brings no gradients, and gathers nothing.
        shared = [part for part in parts if part.is_shared]
        self._rows = OwnedRows(shared, zero) if shared else None
        self._binding = None
        self._knows = before is not None  # so has the user been told
        sets: dict[tuple[str, ...], list[OwnedPart]] = {}
        for part in parts:
            sets.setdefault(part.axes, []).append(part)
        axes = {axis for part in parts for axis in part.axes}
        self._among = [
            _Among(own, mesh.group_of(key), mesh.device) for key, own in sorted(sets.items())
        ]
        known = [] if before is None else before._among
        mesh.agree(axes)
        for among in self._among:
            same = next((other for other in known if among.is_as(other)), None)
            with exchanging(_COMPARING, among.group):
                among.settle(same)
                if same is None:  # states may begin as the parameter
                    self._run(among.bring, None)
                    self._run(among.deliver, lambda part: {})

    @staticmethod
    def _run(function, *arguments) -> None:
        with torch.no_grad():
            function(*arguments)

    def learn(self, binding, state) -> None:
        """Takes over which states the plan has, from a new binding; ``state``: the user's."""
        self._binding = binding
        for part in self.parts:
            part.take_slots(part.slots_of(binding))
            if part.param in state:
                state[part.param].put_quietly(part.adopt(state[part.param]))
                drop_scales(state[part.param], [slot.name for slot in part.slots])
        for part in self.parts if not self._knows else ():
            warnings.warn(f"stepc: {describe(part)}", RuntimeWarning, stacklevel=level_of_caller())
        self._knows = True

    def describe(self) -> list[str]:
        return [describe(part) for part in self.parts]

    def bring(self, facts: _alike.Facts, state) -> None:
        """Brings parts to their owners: all ranks together, which are to have the same facts.
        ``state``: the user's."""
        groups = self._groups()
        what = "the parts could not be brought to their owners"
        with exchanging(what, *groups), torch.no_grad():
            if self._rows is not None:
                self._rows.reduce()
            for among in self._among:
                own = _alike.frozen(facts, among.parts)
                among.bring(_alike.with_steps(own, among.parts, state))
        self.deliver()

    def _groups(self) -> list:
        rows = [] if self._rows is None else [self._rows.group]
        return [*rows, *(among.group for among in self._among)]

    def deliver(self) -> None:
        """Gives what has come to the plan, which may be another one than before."""
        with torch.no_grad():
            for among in self._among:
                among.deliver(self._states_of)

    def send_back(self, state, keeps_step: bool) -> None:
        """Sends new parts back, and puts new states where the user sees them: all ranks
        together."""
        groups = self._groups()
        what = "the parts could not be sent by their owners"
        with exchanging(what, *groups), torch.no_grad():
            for among in self._among:
                among.send_back(self._states_of, self._count_of)
            if self._rows is not None:
                self._rows.gather()
        for part in self.parts:
            if part.stepped:
                self._show(part, state, keeps_step)

    def _count_of(self, part: OwnedPart) -> int:
        return max(map(self._binding.count, part.planned_here), default=0)

    def _states_of(self, part: OwnedPart) -> dict:
        return part.states_in(self._binding)

    @staticmethod
    def _show(part: OwnedPart, state, keeps_step: bool) -> None:
        items = part.made
        own = state.get(part.param, {})
        if keeps_step:
            step = own.get("step")
            if not isinstance(step, torch.Tensor):
                items = {
                    "step": (step := torch.zeros((), dtype=torch.float32, device="cpu")),
                    **items,
                }
            step.fill_(part.count)
        if part.param in state:
            state[part.param].put_quietly(items)
        else:
            state.put_quietly(part.param, items)


def describe(part: OwnedPart) -> str:
    """What is done of a parameter, and why."""
    there, back = part.bytes_moved()
    return (
        f"{part.name} of shape {part.shape}: {part.reason}; rank {part.owner} of "
        f"{len(part.at)} along {', '.join(part.axes)} steps the whole, {there} bytes go to it in a "
        f"step and {back} back"
    )
