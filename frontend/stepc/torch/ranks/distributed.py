# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers whose parameters are spread over ranks.

The plan steps ordinary tensors: a rank's parts, which :class:`DistributedBinding` keeps
beside the parameters that the user has. What it shows the user, states above all, is of
the user's parameters.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ... import errors
from ..._describe import SCALE, is_scale
from ..binding.binding import Binding
from ..binding.groups import bound_groups, owned_state
from ..binding.hypers import HyperReader
from ..binding.state_map import ParamState
from ..tensors.devices import device_of_parts, is_capturing
from ..tensors.members import named_in
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import has_views, views_of
from . import alike as _alike
from .agreement import Item
from .before_step import BeforeStep
from .blocks import align_scalars, put_states, spread_gradients
from .cut_blocks import refuse_cut_blocks
from .files import failure_of, refuse_failure
from .in_parts import InParts
from .in_passes import InPasses
from .items import items_of_optimizer
from .layouts import carriers
from .local_optimizer import LocalOptimizer
from .owned_part import OwnedPart
from .owners import Owners, find_owned
from .parts import Parts, WholePart, has_parts
from .presence import note_presence
from .reading import Reading
from .states_of_parts import hidden_states


def make_binding(optimizer, previous=None, *, ahead: bool = False):
    """A Binding, or where a parameter is spread over ranks, or seen in another shape, one of its
    parts. ``ahead``: of all parameters that may get a gradient, as that of parts always is.
    ValueError for shapes that the class does not step, as where a view was taken away."""
    _check_shapes(optimizer)
    if has_parts(optimizer):
        return DistributedBinding(optimizer, previous)
    return Binding(optimizer, previous if isinstance(previous, Binding) else None, ahead=ahead)


def _check_shapes(optimizer) -> None:
    """As when groups were added: views may have been set since."""
    if optimizer._shards is not None:  # parameters may be ranges of what was added
        return
    for group in optimizer.param_groups:
        optimizer._check_shapes({**group, "params": named_in(group)})


def as_seen(optimizer):
    """The optimizer, none of whose parameters is spread over ranks, or one of what rules see in
    place of its parameters. ValueError as for a binding."""
    _check_shapes(optimizer)
    return (
        LocalOptimizer(optimizer, Parts(optimizer).groups, None)
        if has_views(optimizer)
        else optimizer
    )


@contextlib.contextmanager
def _midway(optimizer, plan=None) -> Iterator[None]:
    """What other ranks do not answer, or a user interrupts, leaves parameters and states of two
    steps from here on; but where the plan says that it has written nothing."""
    try:
        yield
    except (errors.CommunicationError, KeyboardInterrupt):
        optimizer._is_torn = plan is None or plan().is_poisoned()
        raise


@dataclass(frozen=True)
class _Told:
    """What ranks have told each other about their parts. It stays with the optimizer: a rank
    that binds anew alone, after an error of its own say, asks for none of it again, since
    the others would not answer."""

    mesh: object
    parts: list
    views: list  # of the groups, for which the parts were made
    sharing: object
    zero: object
    owners: Owners | None


class DistributedBinding(Reading, InParts, InPasses):
    """As :class:`~stepc.torch.binding.binding.Binding`, of the parts that this rank has."""

    def __init__(self, optimizer, previous=None):
        from .meshes import TorchMesh

        self._state = owned_state(optimizer)
        self._epoch = self._state.epoch
        self._groups = [(g, list(g["params"]), g.get(VIEW)) for g in optimizer.param_groups]
        parts = Parts(optimizer)
        self._zero = parts.zero
        self._device = device_of_parts(list(parts), parts.sharing.device)
        known: _Told | None = optimizer._told
        own = parts.meshes, parts.shared_over, self._device
        if known is not None and known.mesh.is_of(*own):
            self._torch_mesh = known.mesh
        else:
            self._torch_mesh = TorchMesh(*own)
        if known is not None:
            parts.remember(known.parts, known.sharing, known.zero)
        self._passes = optimizer._reducer
        axes = dict(zip(parts.meshes, self._torch_mesh.axes_of, strict=True))
        self._parts = list(parts)
        self._part_of = {id(part.param): part for part in self._parts}
        self._sharing = parts.sharing
        place = optimizer._placed
        self._elsewhere = None if place is None or place.fraction == 0 else place.states
        self._have_files = self._elsewhere == "disk"
        self._agree_on_parts(optimizer, parts, axes)
        if self._sharing.declared:
            self._sharing.agree()
        # What only some stages sum comes first, in an order that all of them have.
        self._in_order = sorted(self._parts, key=lambda part: (not part.sum_key, part.sum_key))
        for part in self._in_order:
            part.resolve(axes, self._torch_mesh)
        self._carriers = carriers(self._in_order)
        owned = find_owned(optimizer, parts.groups)
        refuse_cut_blocks(self._in_order, owned)
        before = None if known is None else known.owners
        self._owners = Owners(owned, self._torch_mesh, before, self._zero) if owned else None
        views = views_of(optimizer)
        optimizer._told = _Told(
            self._torch_mesh, self._parts, views, self._sharing, self._zero, self._owners
        )
        own_part = {id(part.inner): part for part in owned}
        # As the plan has them: an owner has the whole of what it steps for others.
        groups = [[own_part.get(id(part), part) for part in own] for own in parts.groups]
        self._planned = list(itertools.chain.from_iterable(groups))
        self._local = LocalOptimizer(optimizer, groups, self._torch_mesh, self._zero)
        for part in self._planned:
            if part.param in self._state:
                self._take_over(part, self._state[part.param])
        self._inner: Binding | None = None
        self._asks_stages = False
        self._has_scalars = bool(optimizer._scalar_states)
        self._previous = getattr(previous, "_inner", None)
        self._before: BeforeStep | None = None  # of a definition that exchanges something
        self._shown: set[int] = set()

    def _take_over(self, part, items: ParamState) -> None:
        """States of the user's, as a loaded one. What is another rank's goes: nobody would step
        it here."""
        hidden = hidden_states(part, items)
        put_states(part, self._local.state, hidden)
        if isinstance(part, OwnedPart):  # of which the user has a part, on every rank
            return
        for name in [n for n, value in items.items() if value is not None and n not in hidden]:
            # Scales stay with their codes until floats are there for both.
            if not is_scale(str(name)) or name.removesuffix(SCALE) not in hidden:
                items.drop_quietly(name)

    def _agree_on_parts(self, optimizer, parts: Parts, axes: dict) -> None:
        """Notes what ranks must have alike, and compares it where they speak before the first
        round: to say how large their parts are, and to share gradients."""
        interface = self._interface = optimizer._get_definition().interface()
        reader = self._reader = HyperReader(optimizer, interface)
        groups = bound_groups(optimizer, interface, reader)
        views = [view for *_, view in self._groups]
        items = items_of_optimizer(optimizer, interface, groups, views)
        items.insert(3, Item(f"parameters on '{self._device.type}'"))
        spoken: set[str] = set()
        if optimizer._zero is None and optimizer._reduce_dtype is not None:
            items.append(Item(f"reduce_dtype={optimizer._reduce_dtype}"))
        if optimizer._zero is not None:
            items.append(Item(str(optimizer._zero), axes=frozenset({self._torch_mesh.zero_axis})))
            spoken.add(self._torch_mesh.zero_axis)
        if parts.sharing.declared:
            spoken |= self._torch_mesh.named(parts.sharing.axes)
        self._alike: dict[int, set[str]] = {}
        for number, own in enumerate(parts.groups):
            for part in own:
                along = part.alike(axes, self._torch_mesh)
                self._alike[id(part)] = along
                text = f"{part.name} of group {number}, {part.describe(axes)}"
                items.append(Item(text, part.name, frozenset(along)))
                spoken |= part.speaks(axes)
        if self._elsewhere == "host" and self._on_device:
            items.append(Item("states in the host's memory"))
        if self._have_files:
            items.append(Item("states in files"))
            spoken |= self._torch_mesh.shared_axes
        self._torch_mesh.tell(items)
        self._torch_mesh.agree(spoken)

    def _bind(self) -> None:
        """Makes the plan of the parts, and finds out what it exchanges."""
        self._local.check_options()
        # All of them: what crosses ranks has a place for each, with a gradient or not.
        before, self._previous = self._inner or self._previous, None
        for part in self._planned:
            if part.blocks is not None:
                part.blocks.align_counts(self._local.state)
        # Where a gradient comes with another type, say, a loss scale goes on from where it is.
        self._local._keep_scalars(before)
        inner = self._inner = Binding(self._local, before, ahead=True)
        if self._passes is not None:
            self._passes.take_over(inner)
        self._shown.clear()
        # What is of the model is of the same round everywhere; exchanges may be fewer.
        calls = [f"{number}: {', '.join(r)}" for number, r in enumerate(inner.rounds) if r]
        along = dict(self._alike)
        items = [Item(f"rounds of the model {'; '.join(calls) or 'none'}")]
        if calls and not self._sharing.axes:
            whole = [p for p in self._parts if isinstance(p, WholePart) and p.local.requires_grad]
            along.update((id(part), set(self._torch_mesh.mesh.names)) for part in whole)
            items += [Item(f"whole {part.name}, {part.describe({})}") for part in whole]
        self._torch_mesh.tell(items)
        self._asks_stages = bool(calls and self._sharing.axes)
        if self._owners is not None:
            self._owners.learn(inner, self._state)
            for part in self._owners.parts:
                along[id(part)] = along[id(part.inner)] - set(part.axes)
        kept = {
            id(part.local): max(map(inner.count, part.planned_here), default=0)
            for part in self._planned
        }
        # Which steps were skipped the device alone knows.
        known = self._local._keeps_step and not (self._on_device and inner.may_skip)
        counts = kept if known else None
        # Weakly, as this has it.
        passes = None if self._passes is None else weakref.proxy(self)
        before = BeforeStep(self._torch_mesh, self._planned, counts, along, passes)
        needed = inner.exchanges or self._zero is not None or self._shares_codes
        self._before = before if needed else None

    @property
    def _shares_codes(self) -> bool:
        """Whether ranks may have parts of one block of codes, which they encode together: decided
        by what all of them have alike, as one that cuts none steps what others cut."""
        layouts = [part.layout for part in self._parts if part.layout is not None]
        return self._local._kept.keeps_codes and any(d for how in layouts for d, _ in how.dims)

    def _ask_stages(self) -> None:
        """What they have and exchange: in the step, and not where a pass has the plan made, as a
        pass of the stage before waits for that of the next."""
        if self._asks_stages:
            self._torch_mesh.agree(self._torch_mesh.named(self._sharing.axes))
            self._sharing.agree()
            self._asks_stages = False

    # --- A step ---------------------------------------------------------------

    def run(self, optimizer) -> bool:
        """One step; False, with nothing done, when another binding is needed."""
        if not self._is_current(optimizer):
            return False
        capturing = is_capturing(self._device)
        self.check_capture(optimizer)
        facts = self._facts(optimizer)
        due = optimizer._is_check_due() and not capturing
        if due:
            self._torch_mesh.compare(lambda axis: self._facts_along(axis, facts))
        self._refresh(facts)
        if self._zero is not None and not self._zero.how.local_gradients:
            self._zero.compare_reduced(due)
        self._local.follow()
        failure = self._step_at_once(optimizer, facts)
        if self._have_files:
            refuse_failure(self._torch_mesh, failure)
        stepped = [p.param for p in self._parts if p.layout is not None and self._has_gradient(p)]
        torch._C._increment_version(stepped)
        self._inner.note_versions()
        if self._zero is not None:
            self._zero.give_back()
        if capturing and self not in optimizer._captured:
            # Graphs use what is bound for as long as they are launched.
            optimizer._captured = (*optimizer._captured, self)
        if not capturing:
            for part in self._parts:
                part.forget_gradient()
        return True

    def prepare(self) -> None:
        """Makes the plan ahead of the first step."""
        if self._inner is None:
            self._bind()

    def _facts(self, optimizer) -> _alike.Facts:
        """What all ranks are to step with. What a device keeps is not asked for: that would be to
        wait for it."""
        scalars = {}
        if not self._on_device:
            scalars = _alike.kept_scalars(optimizer, self._interface, self._inner)
        return _alike.of_groups(optimizer, self._interface, self._reader, scalars)

    def _facts_along(self, axis: str, facts: _alike.Facts) -> _alike.Facts:
        """With those of the parameters that ranks along the axis have alike."""
        own = [part for part in self._parts if axis in self._alike[id(part)]]
        facts = _alike.frozen(facts, own)
        return facts if self._on_device else _alike.with_steps(facts, own, self._state)

    def _refresh(self, facts: _alike.Facts) -> None:
        """Gives the parts the gradients of the step. Those that are partial are summed; the
        facts go with the first sum over each ranks."""
        if self._on_device:
            note_presence(self._in_order, self._torch_mesh, facts)
        else:
            for part, summed in self._carriers:
                part.facts = _alike.with_steps(_alike.frozen(facts, summed), summed, self._state)
        for part in self._in_order:
            part.refresh()
        spread_gradients(self._planned)

    @property
    def _on_device(self) -> bool:
        return self._device.type != "cpu"

    def check_capture(self, optimizer) -> None:
        """StepcError for a step that is captured and that no graph can have."""
        if not is_capturing(self._device):
            return
        if optimizer._reducer is not None:
            raise errors.StepcError(
                "a step with zero=2 cannot be captured in a CUDA graph, as gradients leave in the "
                "backward pass; zero=1 can"
            )
        if self._inner is None:
            raise errors.StepcError(
                "the first step, or one after a change, cannot be captured in a CUDA graph; make "
                "one before the capture"
            )

    def _step_at_once(self, optimizer, facts: _alike.Facts) -> errors.StoreError | None:
        """Steps all parts, whose gradients have come. Returns what this rank's file has failed
        with, behind all that other ranks wait for."""
        if self._inner is None:
            self._bind_together(optimizer)
        self._ask_stages()
        if self._owners is not None:
            self._owners.bring(facts, self._state)
        before = self._before  # of this step, whatever is bound in it
        try:
            if before is not None:
                self._torch_mesh.agree(before.axes)
                # Where there are graphs the host does not know how many steps were taken.
                before.run(facts, counted=not optimizer._captured)
            with _midway(optimizer, lambda: self.plan):
                failure = failure_of(self._run_inner)
            if before is not None and self._before not in (None, before):
                self._before.remember(before)
            # To ask a device would be to wait for it; parameters are then gathered as they were.
            skipped = not self._on_device and failure is None and self._inner.was_skipped()
            if self._before is not None and skipped:
                self._before.was_skipped()
        finally:
            if before is not None:
                before.end()
        if failure is None:
            self._show()
        if not skipped and self._owners is not None:
            with _midway(optimizer):
                self._owners.send_back(self._state, self._local._keeps_step)
        return failure

    def _bind_together(self, optimizer) -> None:
        """Where it is the first time, all ranks know that no file has failed before any steps."""
        if not self._have_files or optimizer._have_files:
            self._bind()
            return
        refuse_failure(self._torch_mesh, failure_of(self._bind), unstepped=True)
        optimizer._have_files = True

    def _run_inner(self) -> None:
        spread_gradients(self._planned)
        if self._has_scalars:
            align_scalars(self._planned, self._local.state)
        if self._inner.run(self._local):
            return
        self._bind()
        self._ask_stages()
        if self._owners is not None:
            self._owners.deliver()
            spread_gradients(self._planned)
        if not self._inner.run(self._local):
            raise errors.StepcError("the optimizer changed while its step was being prepared")

    def _has_gradient(self, part) -> bool:
        return part.local.grad is not None or self.has_brought(part)

    def _is_current(self, optimizer) -> bool:
        groups = optimizer.param_groups
        if (
            optimizer.state is not self._state
            or self._state.epoch != self._epoch
            or len(groups) != len(self._groups)
        ):
            return False
        for group, (known, before, view) in zip(groups, self._groups, strict=True):
            # ColossalAI gives a group another list in each step.
            if group is not known or len(group["params"]) != len(before):
                return False
            if group.get(VIEW) != view:
                return False
            if any(now is not then for now, then in zip(group["params"], before, strict=True)):
                return False
        return all(part.is_current() for part in self._parts)
