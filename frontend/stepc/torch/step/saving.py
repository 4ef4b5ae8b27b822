# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``state_dict`` and ``load_state_dict``, in torch's format."""

from __future__ import annotations

import contextlib
import warnings
from collections import OrderedDict, defaultdict
from functools import partial
from itertools import chain

import torch

from ..._describe import is_scale
from ..binding.groups import rules_of
from ..binding.precision import SEED
from ..binding.preparation import known_states
from ..binding.rules import WholeState, can_be_codes, whole_states
from ..ranks.base_part import Seen
from ..ranks.parts import is_distributed
from ..ranks.saved_codes import decoded
from ..tensors.callers import level_of_caller
from ..tensors.members import label_of
from ..tensors.patterns import view_of, with_views
from ..tensors.stored import StoredState, copied, in_memory
from .codes_of_others import in_floats
from .modes import outside

_LOAD_HOOKS = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")
_SAVE_HOOKS = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")

# The key of a saved group under which scalars are that the definition keeps
# between steps. Groups are what torch and its checkpoints carry unread.
SCALARS = "scalars"


class Saving:
    """Mix-in of :class:`CompiledStep`: what is saved is what torch's class of this
    name saves, and loads; tensors are the optimizer's own."""

    @torch._disable_dynamo
    def state_dict(self) -> dict:
        """The state of the optimizer, as torch's ``state_dict``: plain dicts.

        Scalars that a definition or a loss scaler keeps between steps are in each
        group, under ``"scalars"``, by name. StatusError where an exchange of the last step
        failed midway: parameters and states are then of two steps.
        """
        self._refuse_torn()
        pre_hooks, post_hooks = (getattr(self, name) for name in _SAVE_HOOKS)
        for hook in pre_hooks.values():
            hook(self)
        if self._binding is not None:
            self._binding.refresh_counts()
        with self._without(_SAVE_HOOKS):
            packed = super().state_dict()
        packed["state"] = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in packed["state"].items()
        }
        for number, group in enumerate(packed["param_groups"]):
            scalars = _scalars_of_group(self._current_scalars(), number)
            if self._rounding:
                scalars[SEED] = self.seed
            if scalars:
                group[SCALARS] = scalars
        self._bring_states(packed)
        self._pack_parts(packed)
        self._finish_saving(packed)
        for hook in post_hooks.values():
            result = hook(self, packed)
            if result is not None:
                packed = result
        return packed

    def _bring_states(self, packed: dict) -> None:
        """Reads what lies in a file, into copies that need no memory to stay in."""
        if self._store is None:
            return
        parts = self._parts() if is_distributed(self) else {}
        numbers = chain.from_iterable(group["params"] for group in packed["param_groups"])
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, param in zip(numbers, params, strict=True):
            own = packed["state"].get(number)
            for name, value in own.items() if isinstance(own, dict) else ():
                if isinstance(value, StoredState):
                    part, read = parts.get(id(param)), value.read(self._copies_in)
                    own[name] = read if part is None else part.show(name, read)

    @torch._disable_dynamo
    def full_state_dict(self) -> dict:
        """As ``state_dict``, of whole tensors where those of ``state_dict`` are a rank's
        parts: torch.optim's own format, which loads in any world and layout.

        All ranks call it together.
        """
        packed = self.state_dict()
        states = self._full_states()
        numbers = chain.from_iterable(group["params"] for group in packed["param_groups"])
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        # Also of what this rank has nothing of; in torch's order.
        saved = {n: states.get(id(param)) for n, param in zip(numbers, params, strict=True)}
        whole = {number: own for number, own in saved.items() if own}
        others = {n: own for n, own in packed["state"].items() if n not in whole}
        packed["state"] = {**whole, **others}
        self._finish_saving(packed)
        return packed

    def _finish_saving(self, packed: dict) -> None:
        """Gives a packed state what is particular to the class it is of."""

    _copies_loaded = True  # False while a state is loaded that nobody else has

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict) -> None:
        """Loads the optimizer state, also one of the original class of this name, and one that
        torchao or FlashOptim saved as codes, which are decoded exactly.

        States keep the dtype that the definition declares for them (torch casts
        them to the parameter's, which costs a bfloat16 parameter the low half of
        its moments). Tensors are copied. Where that fails the optimizer is as it was.
        """
        state_dict = state_dict.copy()
        pre_hooks, post_hooks = (getattr(self, name) for name in _LOAD_HOOKS)
        for hook in pre_hooks.values():
            result = hook(self, state_dict)
            if result is not None:
                state_dict = result
        state_dict = in_floats(state_dict, self.param_groups)
        self._check_saved(state_dict)
        self._check_parts(state_dict)
        self._check_masters(state_dict)
        before = self.state, self.param_groups
        try:
            with self._without(_LOAD_HOOKS):
                groups = with_views(state_dict["param_groups"], self.param_groups)
                super().load_state_dict({**state_dict, "param_groups": groups, "state": {}})
            with outside(), torch.no_grad():
                self.state = self._adopt(state_dict)
        except BaseException:  # no memory, or no room on a disk, for a copy
            self.state, self.param_groups = before
            raise
        self._versions.clear()
        if self._poison is not None and self._reducer is not None:
            self._reducer.forget()
        self._poison, self._is_torn = None, False
        scalars = _merged_scalars([g.pop(SCALARS, {}) for g in self.param_groups])
        seeds = scalars.pop(SEED, None)
        if seeds and self._rounding:
            self._set_seed(int(seeds[0]))
        self._set_scalars(scalars)
        for hook in post_hooks.values():
            hook(self)

    def _check_saved(self, state_dict: dict) -> None:
        """Refuses what cannot be loaded, before anything has changed."""

    @contextlib.contextmanager
    def _without(self, names: tuple[str, ...]):
        saved = {name: getattr(self, name) for name in names}
        for name in names:
            setattr(self, name, OrderedDict())
        try:
            yield
        finally:
            for name, hooks in saved.items():
                setattr(self, name, hooks)

    def _adopt(self, state_dict: dict) -> defaultdict:
        """The saved states, copied, keyed by this optimizer's parameters."""
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = chain.from_iterable(group["params"] for group in self.param_groups)
        params = dict(zip(saved, own, strict=True))
        state = defaultdict(dict)
        codes = self._codes_kept(state_dict)
        forgotten = self._forgotten_states() | self._unknown_states(state_dict["state"])
        how = self._copies_in, self._copies_loaded, self._is_on_host
        for key, value in state_dict["state"].items():
            if key in params and isinstance(value, dict):
                param = params[key]
                if id(param) in codes:
                    value = decoded(value, codes[id(param)], partial(self._shapes_of, param))
                value = {
                    name: adopted(param, name, self._as_tensor(name, item), *how)
                    for name, item in value.items()
                    if name not in forgotten
                }
                state[param] = value
            else:
                state[params.get(key, key)] = value
        return state

    def _codes_kept(self, state_dict: dict) -> dict[int, dict[str, str]]:
        """By ``id()`` of a parameter which states it keeps as codes, and their
        formats; nothing where no codes are loaded."""
        states = [own for own in state_dict["state"].values() if isinstance(own, dict)]
        if not any(is_scale(str(name)) for own in states for name in own):
            return {}
        names = can_be_codes(self._get_definition().interface(), self._dropped_dims)
        return {
            id(param): {
                name: own.format
                for name, own in self._kept.coded(
                    param.dtype, names, label_of(group, number, place)
                ).items()
            }
            for number, group in enumerate(self.param_groups)
            for place, param in enumerate(group["params"])
        }

    def _shapes_of(self, param: torch.Tensor) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Of the whole states beside a parameter the shape in which their rows lie, which a view
        may give them, and that which the user has; nothing where it is stepped as several."""
        number, group = next(
            (n, g) for n, g in enumerate(self.param_groups) if any(p is param for p in g["params"])
        )
        view, shape, rules = view_of(group, number), tuple(param.shape), rules_of(self)

        def states_of(of: tuple[int, ...]) -> dict[str, WholeState]:
            return whole_states(rules.find(number, of), self._dropped_dims)

        if view is None:
            seen = own = states_of(shape)
        elif view.parts or (self._steps_one_by_one(group) and len(view.seen) > 2):
            return {}
        else:
            seen = states_of(view.shape(shape, part=True))
            own = Seen("", view, states_of).states(shape)
        return {
            name: ((state.floats or state).shape, (own[name].floats or own[name]).shape)
            for name, state in seen.items()
        }

    def _unknown_states(self, saved: dict) -> frozenset:
        """Names that no rule of the definition has, said in a warning: a step would refuse
        them in ``state``."""
        names = {name for own in saved.values() if isinstance(own, dict) for name in own}
        if not names:
            return frozenset()
        interface = self._get_definition().interface()
        unknown = names - known_states(interface) - self._forgotten_states()
        if unknown:
            warnings.warn(
                f"stepc: the loaded state has {', '.join(map(repr, sorted(map(str, unknown))))}, "
                f"which optimizer '{interface.name}' does not know and leaves out; its states are "
                f"{', '.join(map(repr, interface.states)) or 'none'}",
                RuntimeWarning,
                stacklevel=level_of_caller(),
            )
        return frozenset(unknown)

    def _as_tensor(self, name: str, item):
        """A state of one element, which old checkpoints have as a number."""
        if name not in self._scalar_states or isinstance(item, torch.Tensor):
            return item
        return torch.tensor(float(item), dtype=torch.float64, device="cpu")


def adopted(
    param: torch.Tensor,
    name: str,
    value,
    folder: str | None = None,
    copy: bool = True,
    on_host: bool = False,
):
    """A saved value for this parameter, copied where it is to be. The declared dtype of a state is
    f64 beside an f64 parameter and f32 beside others; the binding casts what
    deviates. ``folder``: of files that large copies are, for states that are to lie on disk.
    ``on_host``: copies stay in the processor's memory until they are bound, and moved to where
    states lie: those of all parameters need not fit the device's."""
    if isinstance(value, dict):
        how = folder, copy, on_host
        return {key: adopted(param, key, item, *how) for key, item in value.items()}
    if name == "step" and not isinstance(value, torch.Tensor):
        return torch.tensor(float(value), dtype=torch.float32, device="cpu")
    if not isinstance(value, torch.Tensor):
        return value
    value = in_memory(value, folder)
    if name == "step":
        return value.to(dtype=torch.float32, device="cpu", copy=True)
    wide = value.dtype
    if value.is_floating_point() and param.is_floating_point():
        wide = torch.promote_types(param.dtype, torch.float32)
    if folder is not None and type(value) is torch.Tensor:
        return copied(value, wide, folder)
    return value.to(dtype=wide, device="cpu" if on_host else param.device, copy=copy)


# --- Scalars ------------------------------------------------------------------


def _scalars_of_group(scalars: dict, number: int) -> dict[str, float]:
    """Those of one group, with those of the model: a list has one for each group."""
    found = {}
    for name, value in scalars.items():
        if not isinstance(value, list):
            found[name] = value
        elif number < len(value):
            found[name] = value[number]
    return found


def _merged_scalars(groups: list[dict[str, float]]) -> dict[str, list[float]]:
    """By name, of all groups that have them; the first stands for the model."""
    names = {name: 0 for group in groups for name in group}
    return {name: [g[name] for g in groups if name in g] for name in names}
