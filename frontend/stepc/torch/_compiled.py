# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part that all optimizers share: a ``torch.optim.Optimizer`` whose step is
compiled."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from itertools import chain

import torch

from .. import errors
from ..definition import Definition, Interface
from ._binding import Binding
from ._members import ObstacleError
from ._state import StateMap

_LOAD_HOOKS = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")
_SAVE_HOOKS = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")


class CompiledStep:
    """Mix-in before a class of ``torch.optim``: replaces ``step``.

    A class gives ``_zoo_name`` (or overrides ``_get_definition``), reads its
    groups in ``_read_hypers``, ``_read_options`` and ``_read_settings``, and says
    in ``_eager_class`` which class of torch has the same step.
    """

    _zoo_name: str | None = None
    _hyper_names: tuple[str, ...] = ()
    _eager_class: type | None = None
    _keeps_step = True  # whether state has the key "step"
    _static_grads = False

    # Class attributes, so that copies and unpickled objects start without.
    _binding: Binding | None = None
    _warned: frozenset[str] = frozenset()  # reasons for torch's own step

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # From the start: what the user takes before the first step stays right.
        self.state = StateMap(self.state)

    # --- What a class says about itself ---------------------------------------

    def _get_definition(self) -> Definition:
        return Definition.from_zoo(self._zoo_name)

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        """The hyper-parameters in the definition's order."""
        raise NotImplementedError

    def _hypers_of(self, number: int, group: dict) -> tuple[float, ...]:
        """The same of the group with this number; HyperparameterError."""
        try:
            return self._read_hypers(group)
        except (TypeError, ValueError, RuntimeError, KeyError, OverflowError) as error:
            raise _hyper_error(self._hyper_keys(), number, group) or error from None

    def _hyper_keys(self) -> tuple[str, ...]:
        """The keys of a group that ``_read_hypers`` reads."""
        betas = any(name.startswith("beta") for name in self._hyper_names)
        plain = [name for name in self._hyper_names if not name.startswith("beta")]
        return (*plain, "betas") if betas else tuple(plain)

    def _read_options(self, group: dict) -> dict[str, bool]:
        """The definition's options, by name."""
        raise NotImplementedError

    def _read_settings(self, group: dict) -> tuple:
        """All in the group that compiled code depends on, but for the floats."""
        return tuple(self._read_options(group).values())

    def _why_eager(self) -> str | None:
        """Why torch's own step must run, if the groups' flags say so."""
        if self._eager_class is None:
            return None
        for number, group in enumerate(self.param_groups):
            for flag in ("differentiable", "capturable"):
                if group.get(flag):
                    return f"{flag} is set in group {number}"
            if group.get("fused") is False:
                return f"fused is False in group {number}"
        for name in ("grad_scale", "found_inf"):
            if getattr(self, name, None) is not None:
                return f"{name} is set"
        return None

    def _check_interface(self, manifest: dict) -> Interface:
        """The package's interface; the class must know its hyper-parameters."""
        interface = Interface.from_json(manifest)
        if self._hyper_names and interface.hyper_names != self._hyper_names:
            raise errors.StepcError(
                f"optimizer '{interface.name}' has hyper-parameters "
                f"{', '.join(interface.hyper_names)}; expected {', '.join(self._hyper_names)}"
            )
        return interface

    # --- The step -------------------------------------------------------------

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Performs a single optimization step.

        Args:
            closure (Callable, optional): A closure that reevaluates the model
                and returns the loss.

        Compiles at the first call, or finds the package in the cache. Raises
        errors of :mod:`stepc.errors`; after one of them nothing has changed,
        except after STEPC_POISONED.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_all()
        return loss

    @torch._disable_dynamo
    def _step_all(self) -> None:
        # Made here and not in __init__, so that copies have their own.
        lock = self.__dict__.get("_lock") or self.__dict__.setdefault("_lock", threading.Lock())
        if not lock.acquire(blocking=False):
            raise errors.BusyError("another thread is stepping this optimizer", "STEPC_BUSY")
        try:
            self._step_locked()
        finally:
            lock.release()

    def _step_locked(self) -> None:
        binding, self._binding = self._binding, None
        why = self._why_eager()
        if why is None:
            try:
                if binding is None or not binding.run(self):
                    binding = self._bind_and_step(binding)
                self._binding = binding
                return
            except ObstacleError as obstacle:
                if not obstacle.eager or self._eager_class is None:
                    raise errors.TensorError(str(obstacle), "STEPC_INVALID_ARGUMENT") from None
                why = str(obstacle)
        self._step_eagerly(why)

    def _bind_and_step(self, previous: Binding | None) -> Binding:
        binding = Binding(self, previous)
        if not binding.run(self):
            raise errors.StepcError("the optimizer changed while its step was being prepared")
        return binding

    def _step_eagerly(self, why: str) -> None:
        """torch's own step, without its hooks: ours ran them."""
        if why not in self._warned:
            self._warned |= {why}
            warnings.warn(
                f"stepc: {type(self).__name__} runs torch's own step, not a compiled one, "
                f"for all its parameters: {why}",
                RuntimeWarning,
                stacklevel=level_of_caller(),
            )
        step = self._eager_class.step
        while getattr(step, "hooked", False):
            step = step.__wrapped__
        with _as_torch_wants(self):
            step(self)

    # --- Gradients ------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of all parameters, as torch's ``zero_grad``.

        With ``static_grads=True`` they are always zeroed in place: the promise
        is that they stay the same tensors.
        """
        super().zero_grad(set_to_none and not self._static_grads)

    # --- Saving and loading ---------------------------------------------------

    @torch._disable_dynamo
    def state_dict(self) -> dict:
        """The state of the optimizer, as torch's ``state_dict``: plain dicts."""
        pre_hooks, post_hooks = (getattr(self, name) for name in _SAVE_HOOKS)
        for hook in pre_hooks.values():
            hook(self)
        with self._without(_SAVE_HOOKS):
            packed = super().state_dict()
        packed["state"] = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in packed["state"].items()
        }
        for hook in post_hooks.values():
            result = hook(self, packed)
            if result is not None:
                packed = result
        return packed

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict) -> None:
        """Loads the optimizer state, also one of torch's optimizer of this name.

        States keep the dtype that the definition declares for them (torch casts
        them to the parameter's, which costs a bfloat16 parameter the low half of
        its moments). Tensors are copied.
        """
        state_dict = state_dict.copy()
        pre_hooks, post_hooks = (getattr(self, name) for name in _LOAD_HOOKS)
        for hook in pre_hooks.values():
            result = hook(self, state_dict)
            if result is not None:
                state_dict = result
        self._check_saved(state_dict)
        with self._without(_LOAD_HOOKS):
            super().load_state_dict({**state_dict, "state": {}})
        with torch.inference_mode(False), torch.no_grad():
            self.state = self._adopt(state_dict)
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
        for key, value in state_dict["state"].items():
            if key in params and isinstance(value, dict):
                param = params[key]
                value = {name: _adopted(param, name, item) for name, item in value.items()}
                state[param] = value
            else:
                state[params.get(key, key)] = value
        return state

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_static_grads": self._static_grads}


def _hyper_error(keys: tuple[str, ...], number: int, group: dict):
    """The exception that names the first key whose value cannot be read."""
    for key in keys:
        if key not in group:
            return errors.HyperparameterError(f"group {number} has no hyper-parameter '{key}'")
        value = group[key]
        one = "a number or a tensor of one element"
        expected = f"two of them, each {one}" if key == "betas" else one
        try:
            parts = list(value) if key == "betas" else [value]
            is_good = len(parts) == (2 if key == "betas" else 1)
            for part in parts:
                float(part)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            is_good = False
        if not is_good:
            return errors.HyperparameterError(
                f"hyper-parameter '{key}' of group {number} is {value!r}, expected {expected}"
            )
    return None


@contextlib.contextmanager
def _as_torch_wants(optimizer):
    """For a step of torch's, whose states have their parameter's dtype.

    A bfloat16 parameter with float32 states is stepped as float32 and rounded
    after, as compiled code does: its states keep all their bits. States that are
    wider than others than bfloat16 came from a checkpoint and are cast.
    """
    widened = []
    try:
        for param, state in optimizer.state.items():
            if not isinstance(param, torch.Tensor) or not isinstance(state, dict):
                continue
            wide = {
                name: value
                for name, value in state.items()
                if name != "step"
                and isinstance(value, torch.Tensor)
                and value.is_floating_point()
                and value.dtype != param.dtype
            }
            if not wide:
                continue
            if param.dtype is torch.bfloat16 and param.is_leaf and not _differentiates(optimizer):
                data, grad = param.data, param.grad
                widened.append((param, data, grad))
                param.data = data.float()
                param.grad = None if grad is None else grad.float()
                wide = {k: v for k, v in state.items() if k in wide and v.dtype != param.dtype}
            for name, value in wide.items():
                state[name] = value.to(param.dtype)
        yield
    finally:
        for param, data, grad in widened:
            param.grad = None
            param.data = data.copy_(param.data)
            param.grad = grad


def _differentiates(optimizer) -> bool:
    return any(group.get("differentiable") for group in optimizer.param_groups)


def level_of_caller() -> int:
    """The ``stacklevel`` that names the code which called into Stepc and torch."""
    inner = (os.path.dirname(__file__), os.path.dirname(torch.__file__))
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(inner):
        level, frame = level + 1, frame.f_back
    return level


def _adopted(param: torch.Tensor, name: str, value):
    """A saved value for this parameter, copied. The declared dtype of a state is
    f64 beside an f64 parameter and f32 beside others; the binding casts what
    deviates."""
    if isinstance(value, dict):
        return {key: _adopted(param, key, item) for key, item in value.items()}
    if name == "step" and not isinstance(value, torch.Tensor):
        return torch.tensor(float(value), dtype=torch.float32)
    if not isinstance(value, torch.Tensor):
        return value
    if name == "step":
        return value.to(dtype=torch.float32, device="cpu", copy=True)
    if not value.is_floating_point() or not param.is_floating_point():
        return value.to(device=param.device, copy=True)
    wide = torch.promote_types(param.dtype, torch.float32)
    return value.to(dtype=wide, device=param.device, copy=True)
