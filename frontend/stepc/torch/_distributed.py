# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers whose parameters are spread over ranks.

The plan steps ordinary tensors: a rank's parts, which :class:`DistributedBinding` keeps
beside the parameters that the user has. What it shows the user, states above all, is of
the user's parameters.
"""

from __future__ import annotations

import itertools
import os

import torch

from .. import errors
from ._agreement import Item
from ._binding import Binding, bound_groups, owned_state
from ._dtensor import DTensorPart, is_dtensor
from ._hypers import HyperReader
from ._layouts import Layout, PlainPart, find
from ._members import ObstacleError, parameter_name
from ._rules import Rules, WholeState, whole_states
from ._state import StateMap


def make_binding(optimizer, previous=None):
    """A Binding, or where a parameter is spread over ranks one of its parts."""
    if (
        optimizer._zero is not None
        or optimizer._layouts
        or any(is_dtensor(p) for group in optimizer.param_groups for p in group["params"])
    ):
        return DistributedBinding(optimizer, previous)
    return Binding(optimizer, previous if isinstance(previous, Binding) else None)


class WholePart:
    """A parameter that every rank has as it is."""

    layout = None

    def __init__(self, param: torch.Tensor):
        self.param = self.local = param

    def is_current(self) -> bool:
        return True

    def refresh(self) -> None:
        pass

    def show(self, name: str, state: torch.Tensor) -> torch.Tensor:
        return state

    def hide(self, name: str, state):
        return state


class _LocalOptimizer:
    """An optimizer of the parts: what the user's is, but for parameters and states."""

    _static_grads = False

    def __init__(self, optimizer, groups: list[list], mesh):
        self._optimizer = optimizer
        self._mesh = mesh
        self.param_groups = [
            {**group, "params": [part.local for part in parts]}
            for group, parts in zip(optimizer.param_groups, groups, strict=True)
        ]
        self._layouts = {id(part.local): part.layout for parts in groups for part in parts}
        self.state = StateMap()

    def __getattr__(self, name: str):
        return getattr(self._optimizer, name)

    def _layout_of(self, param: torch.Tensor):
        return self._layouts[id(param)]

    def follow(self) -> None:
        """Takes over what the user has changed in the groups."""
        for own, group in zip(self.param_groups, self._optimizer.param_groups, strict=True):
            for key, value in group.items():
                if key != "params":
                    own[key] = value


class DistributedBinding:
    """As :class:`~stepc.torch._binding.Binding`, of the parts that this rank has."""

    def __init__(self, optimizer, previous=None):
        from ._meshes import TorchMesh

        self._state = owned_state(optimizer)
        self._epoch = self._state.epoch
        self._groups = [(group, group["params"], list(group["params"]))
                        for group in optimizer.param_groups]  # fmt: skip
        params = list(itertools.chain.from_iterable(params for _, _, params in self._groups))
        found = self._find_layouts(optimizer)
        meshes = list(
            dict.fromkeys(
                [p.device_mesh for p in params if is_dtensor(p)]
                + [layout.mesh for layout in found.values()]
            )
        )
        self._zero = self._make_zero(optimizer, meshes)
        self._torch_mesh = TorchMesh(meshes, [optimizer._zero.group] if self._zero else [])
        axes = dict(zip(meshes, self._torch_mesh.axes_of, strict=True))
        self._plain = {key: (layout, axes[layout.mesh]) for key, layout in found.items()}
        whole_of = _whole_states(optimizer)
        groups = [
            [
                self._part(param, axes, parameter_name(group, number, place), whole_of)
                for place, param in enumerate(params)
            ]
            for number, (group, _, params) in enumerate(self._groups)
        ]
        self._parts = list(itertools.chain.from_iterable(groups))
        self._local = _LocalOptimizer(optimizer, groups, self._torch_mesh)
        for part in self._parts:
            if part.param in self._state:
                items = self._state[part.param]
                hidden = {name: part.hide(name, value) for name, value in items.items()}
                self._local.state.put_quietly(part.local, hidden)
        compared = ((_item(part), part) for part in self._parts)
        self._compared = [(item, part) for item, part in compared if item is not None]
        definition = optimizer._get_definition().digest()
        self._torch_mesh.tell(lambda: self._items(definition))
        inner = getattr(previous, "_inner", None)
        self._inner: Binding | None = None
        self._previous = inner
        self._shown: set[int] = set()

    def _items(self, definition: str) -> list[Item]:
        """What all ranks of a group must have alike."""
        # What is of the model is of the same round everywhere; exchanges may be fewer.
        calls = [f"{number}: {', '.join(r)}" for number, r in enumerate(self._inner.rounds) if r]
        items = [
            Item(f"definition {definition}"),
            Item(f"{len(self._groups)} parameter groups"),
            Item(f"rounds of the model {'; '.join(calls) or 'none'}"),
        ]
        return items + [item for item, _ in self._compared]

    def _find_layouts(self, optimizer) -> dict[int, Layout]:
        """Those that ``layouts`` gives plain parameters, by ``id()``."""
        found = {}
        if not optimizer._layouts:
            return found
        for number, (group, _, params) in enumerate(self._groups):
            for place, param in enumerate(params):
                name = parameter_name(group, number, place)
                if not is_dtensor(param):
                    layout = find(optimizer._layouts, group, place, name)
                    if layout is not None:
                        found[id(param)] = layout
        return found

    def _make_zero(self, optimizer, meshes: list):
        """The parameters of ``zero=1``, or None."""
        if optimizer._zero is None:
            return None
        from ._zero import Zero

        if meshes:
            raise ObstacleError(
                "a parameter is a DTensor, whose placements say already where its states lie; "
                "zero=1 is for plain parameters",
                False,
            )
        named = [
            (param, parameter_name(group, number, place))
            for number, (group, _, params) in enumerate(self._groups)
            for place, param in enumerate(params)
        ]
        if optimizer._reducer is not None:
            return optimizer._reducer.zero
        return Zero.of(named, optimizer._zero)

    def _part(self, param: torch.Tensor, axes: dict, name: str, whole_of: dict):
        if self._zero is not None:
            part = self._zero.part_of(param)
            part.whole = whole_of[id(param)]
            return part
        if id(param) in self._plain:
            layout, own = self._plain[id(param)]
            return PlainPart(param, name, layout, own, self._torch_mesh)
        if is_dtensor(param):
            return DTensorPart(param, axes[param.device_mesh], name, whole_of[id(param)])
        return WholePart(param)

    # --- A step ---------------------------------------------------------------

    def run(self, optimizer) -> bool:
        """One step; False, with nothing done, when another binding is needed."""
        if not self._is_current(optimizer):
            return False
        for part in self._parts:
            part.refresh()
        if self._zero is not None:
            self._zero.refresh(os.environ.get("STEPC_CHECK") == "1")
        self._torch_mesh.expect(
            [(item, part.local.grad is not None) for item, part in self._compared]
        )
        self._local.follow()
        if self._inner is None or not self._inner.run(self._local):
            # All of them: what crosses ranks has a place for each, with a gradient or not.
            self._inner = Binding(self._local, self._inner or self._previous, ahead=True)
            self._previous = None
            self._shown.clear()
            if not self._inner.run(self._local):
                raise errors.StepcError("the optimizer changed while its step was being prepared")
        self._show()
        if self._zero is not None and not self._inner.was_skipped():
            self._zero.gather()
        stepped = [
            p.param for p in self._parts if p.layout is not None and p.local.grad is not None
        ]
        torch._C._increment_version(stepped)
        return True

    def _is_current(self, optimizer) -> bool:
        groups = optimizer.param_groups
        if (
            optimizer.state is not self._state
            or self._state.epoch != self._epoch
            or len(groups) != len(self._groups)
        ):
            return False
        for group, (known, params, copy) in zip(groups, self._groups, strict=True):
            if group is not known or group["params"] is not params or len(params) != len(copy):
                return False
            if any(now is not then for now, then in zip(params, copy, strict=True)):
                return False
        return all(part.is_current() for part in self._parts)

    def _show(self) -> None:
        """Puts new states where the user sees them."""
        for number, part in enumerate(self._parts):
            if number in self._shown or part.local not in self._local.state:
                continue
            self._shown.add(number)
            items = {
                name: part.show(name, value)
                for name, value in self._local.state[part.local].items()
            }
            if part.param in self._state:
                self._state[part.param].put_quietly(items)
            else:
                self._state.put_quietly(part.param, items)

    # --- What is inside -------------------------------------------------------

    @property
    def interface(self):
        return self._inner.interface

    @property
    def plan(self):
        return self._inner.plan

    def was_skipped(self) -> bool:
        return self._inner.was_skipped()

    def scalars(self) -> dict:
        return self._inner.scalars()

    def reports(self) -> dict:
        return self._inner.reports()

    def full_states(self) -> dict[int, dict]:
        """Whole states by ``id()`` of the parameter: all ranks together."""
        states = {
            id(part.param): dict(self._state[part.param])
            for part in self._parts
            if part.param in self._state
        }
        if self._zero is not None:
            self._zero.full(states)
            return states
        for part in self._parts:
            own = states.get(id(part.param), {})
            if part.layout is not None:
                own.update({name: part.full(name, value) for name, value in own.items()})
        return states


def _item(part) -> Item | None:
    """A part as ranks compare it; None for a tensor that every rank has as it is."""
    layout = part.layout
    if layout is None:
        return None
    axes = {name for _, names in layout.dims for name in names} | set(layout.flat)
    text = f"{part.name} of shape {layout.shape}, {part.local.dtype}, layout '{layout.request()}'"
    return Item(text, part.name, frozenset(axes), frozenset(layout.distinct))


def _whole_states(optimizer) -> dict[int, dict[str, WholeState]]:
    """The states of each parameter, of the whole tensor, by ``id()``."""
    interface = optimizer._get_definition().interface()
    groups = bound_groups(optimizer, interface, HyperReader(optimizer, interface))
    rules = Rules(interface, [interface.resolve(g.options, g.hypers) for g in groups])
    found = {}
    for number, bound in enumerate(groups):
        for param in bound.params:
            rule = rules.find(number, param.shape)
            dropped = optimizer._dropped_dims
            own = whole_states(rule, tuple(param.shape), dropped) if rule else {}
            # Some are of a whole tensor on every rank, and not of its elements.
            for name in optimizer._scalar_states:
                own.pop(name, None)
            found[id(param)] = own
    return found
