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
import math
import weakref
from collections.abc import Callable, Iterator

import torch

from ... import errors
from ..binding.features import ClipByNorm, DynamicLossScale, clips
from ..ranks.accumulators import refuse_reducers
from ..ranks.distributed import make_binding
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import exchanging, within
from ..tensors.devices import captures_steps_of
from ..tensors.members import ObstacleError, parameter_name, parameter_names
from ..tensors.views import obstacle
from .eager import why_eager


class BackwardStep:
    """A step whose gradients come one by one: begun with the first, and ended by ``end``."""

    def __init__(self, optimizer, doing: str, ours: Callable[[torch.Tensor], bool]):
        """Begins it. ``doing``: what asks for it, for messages; ``ours``: whether a gradient that
        a parameter has is of this pass, and was not there before. TensorError and StepcError
        where the optimizer cannot be stepped so; nothing has changed then."""
        if why := why_eager(optimizer):
            raise errors.StepcError(
                f"{doing}: {type(optimizer).__name__} must run torch's own step ({why}), which "
                "needs all gradients"
            )
        _refuse_reducers(optimizer, doing)
        _check_no_gradients(optimizer, ours)
        if captures_steps_of(optimizer.param_groups):
            raise errors.StepcError(f"{doing} cannot be captured in a CUDA graph")
        binding, optimizer._binding = optimizer._binding, None
        try:
            if binding is None or not binding.begin(optimizer):
                optimizer._keep_scalars(binding)
                binding = make_binding(optimizer, binding, ahead=True)
                if not binding.begin(optimizer):
                    raise errors.StepcError(
                        "the optimizer changed while its step was being prepared"
                    )
        except ObstacleError as error:
            raise errors.TensorError(str(error), error.status) from None
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
        """Steps the parameter, and frees its gradient. StepcError where it cannot be stepped;
        it has not changed then."""
        optimizer = self._optimizer()
        if param.grad is None:
            raise errors.StepcError(
                f"{_name(optimizer, param)} has lost its gradient before it was stepped: another "
                "hook, as of another optimizer, has freed it"
            )
        if not self._binding.has(param):
            raise errors.StepcError(
                f"{_name(optimizer, param)} has come since the step began, and takes part from "
                "the next one on (zero_grad() drops its gradient)"
            )
        words = None if is_dtensor(param) else obstacle(param, param.grad)
        if words is not None:
            raise errors.TensorError(
                f"{_name(optimizer, param)} {words[0]}", "STEPC_DTYPE_MISMATCH"
            )
        try:
            self._ids.update(self._binding.step_some([param]))
        except ObstacleError as error:
            raise errors.TensorError(str(error), error.status) from None
        self._stepped.add(id(param))
        param.grad = None

    def compare(self) -> None:
        """That ranks step with the same, where that is due."""
        self._binding.compare(self._optimizer())

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
        self._norms: _Norms | None = None  # in the pass that measures them
        self._knows_norm = False  # in the pass behind it
        self.reports: dict[str, float] = {}  # of the clipping of the last step
        self._hooks: list = []
        self._watched: dict[int, weakref.ref] = {}  # by id(), parameters with a hook
        weakref.finalize(optimizer, _remove, self._hooks)
        self.watch(optimizer)

    def watch(self, optimizer) -> None:
        """Has hooks on all parameters that may get a gradient now."""
        for param in _params(optimizer):
            if not self._watches(param):
                self._watched[id(param)] = weakref.ref(param)
                self._hooks.append(param.register_post_accumulate_grad_hook(_weak(self)))

    def _watches(self, param: torch.Tensor) -> bool:
        known = self._watched.get(id(param))
        return known is not None and known() is param

    @property
    def has_begun(self) -> bool:
        """Whether a step is on its way: parameters are new, and counts are not."""
        return self._step is not None and self._step.is_current()

    @torch._disable_dynamo
    def came(self, param: torch.Tensor) -> None:
        """A gradient is whole. What is refused leaves none, as the next pass would add to it."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        try:
            with optimizer._locked(), within(optimizer._timeout):
                optimizer._refuse_poisoned()
                if self._norms is not None:
                    self._norms.take(param)
                else:
                    with _midway(optimizer):
                        self._take(optimizer, param)
        except BaseException:
            param.grad = None
            raise

    def backward(self, optimizer, loss: torch.Tensor, retain_graph: bool) -> torch.Tensor | None:
        """Runs the backward pass, with ``ClipByNorm`` two: one for the norm, which frees the
        gradients and keeps the graph, and the one that steps. Returns the norm."""
        self.watch(optimizer)
        clip = optimizer._norm_clip
        if clip is None:
            return loss.backward(retain_graph=retain_graph)
        if self.has_begun:
            raise errors.StepcError("call step() before the next backward pass")
        if optimizer._is_shared:
            raise errors.StepcError(
                f"{clip!r} with fused_backward=True knows the norm of whole parameters and of "
                "DTensors, and not that of what layouts or setup_distributed have cut"
            )
        self._norms = _Norms(optimizer, self._DOING, optimizer.loss_scale, clip.norm_type)
        try:
            norm = self._norms.measure(loss)
        finally:
            self._norms = None
        (scaling,), before = optimizer._scaling, optimizer._scaling[0].scale
        coefficient = coefficient_of(clip.max_norm, norm)
        self._knows_norm = True
        try:
            # Numbers of a step are read when it begins.
            scaling.scale = before / coefficient if coefficient else math.inf
            loss.backward(retain_graph=retain_graph)
        finally:
            scaling.scale, self._knows_norm = before, False
        self.reports = {"grad_norm": float(norm), "clip_coef": coefficient}
        return norm

    def _take(self, optimizer, param: torch.Tensor) -> None:
        if optimizer._norm_clip is not None and not self._knows_norm:
            raise _wants_norm(optimizer)
        if not self.has_begun:
            # What has no hook yet is stepped by step().
            self._step = BackwardStep(
                optimizer, self._DOING, lambda p: p is param or not self._watches(p)
            )
        if self._step.has_stepped(param):
            raise errors.StepcError(
                f"{_name(optimizer, param)} has been stepped since the last step(): with "
                "fused_backward=True call step() after each backward pass. Gradients of several "
                "passes, or of several uses that are reduced apart, cannot be added up"
            )
        self._step.take(param)

    def end(self, optimizer) -> bool:
        """Ends the step that a backward pass began. False where none did. Parameters that have
        a gradient by other ways, as by hand, are stepped with it."""
        self.watch(optimizer)
        rest = [param for param in _params(optimizer) if param.grad is not None]
        if not self.has_begun:
            self._step = None
            if rest and optimizer._norm_clip is not None:
                raise _wants_norm(optimizer)
            return False
        if getattr(optimizer, "found_inf", None) is not None:
            raise errors.StepcError(
                "a GradScaler has nothing to unscale where gradients are stepped in the backward "
                "pass; give the optimizer loss_scale= and call opt.backward(loss)"
            )
        for param in rest:
            if self._step.has_stepped(param):
                raise errors.StepcError(
                    f"{_name(optimizer, param)} has a second gradient in this step, which is of "
                    "no use to it (zero_grad() drops it)"
                )
        with _midway(optimizer):
            self._step.compare()
            begun, self._step = self._step, None
            try:
                for param in rest:
                    begun.take(param)
            finally:
                begun.end()
        return True


class _Norms:
    """The norm of all gradients, from a pass that frees each of them and keeps the graph."""

    def __init__(self, optimizer, doing: str, scale: float, order: float):
        """Gradients are divided by ``scale`` first. StepcError for what cannot be measured."""
        _refuse_reducers(optimizer, doing)
        _check_no_gradients(optimizer, lambda param: False)
        self._optimizer, self._scale, self._order = optimizer, scale, order
        self._found: dict[int, torch.Tensor] = {}

    def take(self, param: torch.Tensor) -> None:
        """Measures a gradient, and frees it."""
        if id(param) in self._found:
            raise errors.StepcError(
                f"{_name(self._optimizer, param)} has two gradients in one pass, whose sum is not "
                "known"
            )
        wide = param.grad.to(torch.promote_types(param.grad.dtype, torch.float32))
        norm = torch.linalg.vector_norm(wide / self._scale, self._order)
        self._found[id(param)] = norm.double()
        param.grad = None

    def measure(self, loss: torch.Tensor) -> torch.Tensor:
        """Runs the pass, of this optimizer's parameters alone where they are leaves of the graph,
        as others would get their gradients twice; those of ``fully_shard`` are none."""
        params = _params(self._optimizer)
        if any(map(is_dtensor, params)):
            loss.backward(retain_graph=True)
        else:
            loss.backward(retain_graph=True, inputs=params)
        # In the order of the parameters, which all ranks have.
        own = [(p, self._found[id(p)]) for p in params if id(p) in self._found]
        groups = [
            group for p, _ in own if is_dtensor(p) for group in p.device_mesh.get_all_groups()
        ]
        with (
            within(self._optimizer._timeout),
            exchanging("the norm of the gradients could not be summed", *groups),
        ):
            norms = [norm.full_tensor() if is_dtensor(norm) else norm for _, norm in own]
        norms = norms or [torch.zeros((), dtype=torch.float64, device="cpu")]
        return torch.linalg.vector_norm(torch.stack(norms), self._order)


def coefficient_of(max_norm: float, norm: torch.Tensor) -> float:
    """What clipping multiplies gradients by, as torch's; NaN of a norm that is none."""
    ratio = float(max_norm) / (float(norm) + 1e-6)
    return 1.0 if ratio >= 1.0 else ratio


def _wants_norm(optimizer) -> errors.StepcError:
    return errors.StepcError(
        f"{optimizer._norm_clip!r} needs the norm before the first parameter is stepped: with "
        "fused_backward=True call opt.backward(loss), which makes two passes, in place of "
        "loss.backward()"
    )


@contextlib.contextmanager
def _midway(optimizer) -> Iterator[None]:
    """What is interrupted here, or not answered by other ranks, may have been done or not."""
    try:
        yield
    except errors.CommunicationError as error:
        if not isinstance(error, errors.DisagreementError):
            optimizer._poison = str(error)
        raise
    except Exception:
        raise
    except BaseException as error:
        optimizer._poison = f"{type(error).__name__} came in a step of a backward pass"
        raise


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
            step = BackwardStep(self, "a fused backward pass", lambda param: False)
            try:
                with _hooked(_params(self), step.take):
                    loss.backward()
            finally:
                step.end()

    def _norm_in_backward(self, loss: torch.Tensor, scale: float) -> torch.Tensor:
        """The 2-norm of all gradients over ``scale``, as one vector, of all ranks; frees them
        and keeps the graph for the pass that steps."""
        norms = _Norms(self, "the norm of a fused backward pass", scale, 2.0)
        with _hooked(_params(self), norms.take):
            return norms.measure(loss)


def in_two_passes(clip, loss_scale, reproducible: bool) -> tuple[ClipByNorm | None, list, object]:
    """Of the arguments ``clip`` and ``loss_scale`` the clipping whose norm is measured in a pass
    of its own, and what is left of both: a scale by which the clipping is done."""
    given = clips(clip)
    norms = [feature for feature in given if isinstance(feature, ClipByNorm)]
    if not norms or isinstance(loss_scale, DynamicLossScale):
        return None, clip, loss_scale
    if len(given) > 1:
        raise ValueError(
            f"clip is {list(given)}: with fused_backward=True ClipByNorm stands alone, as its norm "
            "is of gradients before anything"
        )
    if reproducible:
        raise ValueError(
            "reproducible=True sums the norm of ClipByNorm within the step; with "
            "fused_backward=True it is torch's, whose bits are of the ranks and threads"
        )
    return norms[0], [], 1.0 if loss_scale is None else loss_scale


def check(optimizer, given: dict) -> None:
    """ValueError for what does not go with ``fused_backward=True``. ``given``: arguments."""
    if optimizer._why_not_in_backward:
        raise ValueError(
            f"{type(optimizer).__name__} cannot be stepped in the backward pass: "
            f"{optimizer._why_not_in_backward}"
        )
    if zero := given.get("zero"):
        raise ValueError(
            f"fused_backward=True does not go with zero={zero}, whose ranks reduce gradients "
            "before the step; with parameters that fully_shard has cut it does"
        )
    if given["static_grads"]:
        raise ValueError("fused_backward=True frees gradients, static_grads=True keeps them")
    if given["exclusive_writes"]:
        raise ValueError(
            "fused_backward=True steps parameters one by one, where exclusive_writes=True cannot "
            "look at one a step"
        )
    if given.get("accumulation_steps") is not None:
        raise ValueError(
            "fused_backward=True steps in each backward pass, accumulation_steps sums several"
        )


def _params(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _name(optimizer, wanted: torch.Tensor) -> str:
    every = (param for group in optimizer.param_groups for param in group["params"])
    named = zip(parameter_names(optimizer.param_groups), every, strict=True)
    return next((name for name, param in named if param is wanted), "a parameter of no group")


def _check_no_gradients(optimizer, ours: Callable[[torch.Tensor], bool]) -> None:
    for number, group in enumerate(optimizer.param_groups):
        for position, param in enumerate(group["params"]):
            if param.grad is not None and not ours(param):
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
