# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps inside the backward pass: each parameter as soon as it has its gradient,
which is freed at once. Of all gradients only one or two exist at a time.

``fused_backward=True`` of any class has hooks on the parameters for as long as the optimizer
lives; LOMO's classes have them for the one pass that their ``fused_backward`` runs. Lv et al.,
"Full Parameter Fine-tuning for Large Language Models with Limited Resources", ACL 2024.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator

import torch

from ... import errors
from ..ranks.accumulators import refuse_reducers
from ..ranks.distributed import make_binding
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import within
from ..tensors.members import ObstacleError, parameter_name, parameter_names


class BackwardStep:
    """A step whose gradients come one by one: begun with the first, and ended by ``end``."""

    def __init__(self, optimizer, doing: str, come: torch.Tensor | None = None):
        """Begins it. ``doing``: what asks for it, for messages; ``come``: the parameter whose
        gradient is there. TensorError and StepcError where the optimizer cannot be stepped so;
        nothing has changed then."""
        _check_no_gradients(optimizer, come)
        _refuse_reducers(optimizer, doing)
        binding, optimizer._binding = optimizer._binding, None
        try:
            if binding is None or not binding.begin(optimizer):
                optimizer._keep_scalars(binding)
                binding = make_binding(optimizer, binding, ahead=True)
                if not binding.begin(optimizer):
                    raise errors.StepcError(
                        "the optimizer changed while its step was being prepared"
                    )
        except ObstacleError as obstacle:
            raise errors.TensorError(str(obstacle), obstacle.status) from None
        finally:
            optimizer._binding = binding
        self._optimizer = weakref.ref(optimizer)
        self._binding = binding
        self._ids: set[int] = set()  # of the plan, of those that took part
        self._stepped: set[int] = set()  # id() of these parameters

    def is_current(self) -> bool:
        """Not where a state was loaded meanwhile, say: what was stepped is then gone."""
        return self._binding is self._optimizer()._binding

    def has_stepped(self, param: torch.Tensor) -> bool:
        return id(param) in self._stepped

    def take(self, param: torch.Tensor) -> None:
        """Steps the parameter, and frees its gradient."""
        self._ids.update(self._binding.step_some([param]))
        self._stepped.add(id(param))
        param.grad = None

    def end(self) -> None:
        self._binding.end(self._ids)


class BackwardSteps:
    """``fused_backward=True``: what an optimizer has that is stepped in ``loss.backward()``.

    The hooks do not keep the optimizer, and go with it.
    """

    _DOING = "fused_backward=True"

    def __init__(self, optimizer):
        self._optimizer = weakref.ref(optimizer)
        self._step: BackwardStep | None = None
        self._hooks: list = []
        weakref.finalize(optimizer, _remove, self._hooks)
        self.watch(_params(optimizer))

    def watch(self, params: Iterable[torch.Tensor]) -> None:
        """Steps these too, those of them that get a gradient."""
        self._hooks += [
            param.register_post_accumulate_grad_hook(_weak(self))
            for param in params
            if param.requires_grad
        ]

    def came(self, param: torch.Tensor) -> None:
        """A gradient is whole. StepcError for a second one in a step."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        with optimizer._locked(), within(optimizer._timeout):
            optimizer._refuse_poisoned()
            if self._step is None or not self._step.is_current():
                self._step = BackwardStep(optimizer, self._DOING, param)
            if self._step.has_stepped(param):
                raise errors.StepcError(
                    f"{_name(optimizer, param)} has been stepped since the last step(): with "
                    "fused_backward=True call step() after each backward pass, gradients of "
                    "several passes cannot be added up"
                )
            self._step.take(param)

    def end(self, optimizer) -> bool:
        """Ends the step that a backward pass began. False where none did. Parameters that have
        a gradient by other ways, as by hand, are stepped with it."""
        begun, self._step = self._step, None
        if begun is None or not begun.is_current():
            return False
        if getattr(optimizer, "found_inf", None) is not None:
            self._step = begun
            raise errors.StepcError(
                "a GradScaler has nothing to unscale where gradients are stepped in the backward "
                "pass; give the optimizer loss_scale= and differentiate opt.scale(loss)"
            )
        try:
            for param in _params(optimizer):
                if param.grad is not None and not begun.has_stepped(param):
                    begun.take(param)
        finally:
            begun.end()
        return True


class InBackward:
    """Mix-in of LOMO's classes, whose own method runs the backward pass."""

    def _step_in_backward(self, loss: torch.Tensor) -> None:
        """``loss.backward()``, in which every parameter of this optimizer that gets a
        gradient is stepped and loses it.

        Gradients that were there before are of no use to it and are an error, and so is
        who reduces them over ranks, which is done after this. Where the backward pass fails,
        the parameters that came before stay stepped.
        """
        with self._locked(), within(self._timeout):
            step = BackwardStep(self, "a fused backward pass")
            try:
                with _hooked(_params(self), step.take):
                    loss.backward()
            finally:
                step.end()

    def _norm_in_backward(self, loss: torch.Tensor, scale: float) -> torch.Tensor:
        """The 2-norm of all gradients over ``scale``, as one vector, of all ranks; frees them
        and keeps the graph for the pass that steps."""
        _refuse_reducers(self, "the norm of a fused backward pass")
        norms: dict[int, torch.Tensor] = {}
        params = _params(self)

        def measure(param: torch.Tensor) -> None:
            wide = param.grad.to(torch.promote_types(param.grad.dtype, torch.float32))
            norms[id(param)] = torch.linalg.vector_norm(wide / scale).double()
            param.grad = None

        with _hooked(params, measure):
            loss.backward(retain_graph=True)
        # In an order that all ranks have.
        own = [norms[id(param)] for param in params if id(param) in norms]
        own = [norm.full_tensor() if is_dtensor(norm) else norm for norm in own]
        own = own or [torch.zeros((), dtype=torch.float64, device="cpu")]
        return torch.linalg.vector_norm(torch.stack(own))


def check(zero: int, static_grads: bool, accumulation_steps) -> None:
    """ValueError for what does not go with ``fused_backward=True``."""
    if zero:
        raise ValueError(
            f"fused_backward=True does not go with zero={zero}, whose ranks reduce gradients "
            "before the step; with parameters that fully_shard has cut it does"
        )
    if static_grads:
        raise ValueError("fused_backward=True frees gradients, static_grads=True keeps them")
    if accumulation_steps is not None:
        raise ValueError(
            "fused_backward=True steps in each backward pass, accumulation_steps sums several"
        )


def _params(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _name(optimizer, wanted: torch.Tensor) -> str:
    every = (param for group in optimizer.param_groups for param in group["params"])
    named = zip(parameter_names(optimizer.param_groups), every, strict=True)
    return next(name for name, param in named if param is wanted)


def _check_no_gradients(optimizer, come: torch.Tensor | None) -> None:
    for number, group in enumerate(optimizer.param_groups):
        for position, param in enumerate(group["params"]):
            if param.grad is not None and param is not come:
                raise errors.StepcError(
                    f"{parameter_name(group, number, position)} has a gradient before the "
                    "fused backward pass, which would step it with the sum "
                    "(zero_grad() drops it)"
                )


def _refuse_reducers(optimizer, doing: str) -> None:
    every = (param for group in optimizer.param_groups for param in group["params"])
    named = zip(parameter_names(optimizer.param_groups), every, strict=True)
    plain = [(n, p) for n, p in named if p.requires_grad and not is_dtensor(p)]
    refuse_reducers(plain, doing)


def _weak(steps: BackwardSteps) -> Callable[[torch.Tensor], None]:
    known = weakref.WeakMethod(steps.came)

    def came(param: torch.Tensor) -> None:
        method = known()
        if method is not None:
            method(param)

    return came


def _remove(handles: list) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


@contextlib.contextmanager
def _hooked(params: list[torch.Tensor], hook: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Has ``hook`` called for each parameter once its gradient is whole."""
    handles = [param.register_post_accumulate_grad_hook(hook) for param in params]
    try:
        yield
    finally:
        _remove(handles)
