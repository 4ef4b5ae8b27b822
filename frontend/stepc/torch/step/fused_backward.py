# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps inside the backward pass: each parameter as soon as it has its gradient,
which is freed at once. Of all gradients only one or two exist at a time.

``fused_backward=True`` of any class has hooks on the parameters for as long as the optimizer
lives; LOMO's classes have them for the one pass that their ``fused_backward`` runs. Lv et al.,
"Full Parameter Fine-tuning for Large Language Models with Limited Resources", ACL 2024.

With ``zero`` a gradient goes into its bucket, which leaves when it is complete. All ranks then
begin a step with the first gradient that they have and end it by ``step()``, whatever gradients
there were.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator

import torch

from ... import errors
from ..ranks.distributed import make_binding
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import within
from ..tensors.dlpack import obstacle
from ..tensors.hooks import GradientHooks
from ..tensors.members import ObstacleError
from .backward_checks import check_step, name_of, trained, wants_norm
from .backward_norms import Norms, coefficient_of, hooked

_BROKEN = (
    "a backward pass broke off; parameters that all ranks had all gradients of are stepped, and "
    "nothing else has changed"
)


class BackwardStep:
    """A step whose gradients come one by one: begun with the first, and ended by ``end``."""

    def __init__(self, optimizer, doing: str, ours: Callable[[torch.Tensor], bool]):
        """Begins it. ``doing``: what asks for it, for messages; ``ours``: whether a gradient that
        a parameter has is of this pass, and was not there before. TensorError and StepcError
        where the optimizer cannot be stepped so; nothing has changed then."""
        check_step(optimizer, doing, ours)
        optimizer._refuse_unkept()
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

    @property
    def crosses(self) -> bool:
        """Whether other ranks wait for its end."""
        return self._binding.crosses

    @property
    def keeps_gradients(self) -> bool:
        """Whether gradients stay where they are until its end."""
        return self._binding.keeps_gradients

    def has_stepped(self, param: torch.Tensor) -> bool:
        return id(param) in self._stepped

    def take(self, param: torch.Tensor) -> None:
        """Steps the parameter, or sends its gradient, and frees that. StepcError where it cannot
        be stepped; it has not changed then."""
        optimizer = self._optimizer()
        if param.grad is None:
            raise errors.StepcError(
                f"{name_of(optimizer, param)} has lost its gradient before it was stepped: another "
                "hook, as of another optimizer, has freed it"
            )
        if not self._binding.has(param):
            raise errors.StepcError(
                f"{name_of(optimizer, param)} has come since the step began, and takes part from "
                "the next one on (zero_grad() drops its gradient)"
            )
        words = None if is_dtensor(param) else obstacle(param, param.grad)
        if words is not None:
            raise errors.TensorError(
                f"{name_of(optimizer, param)} {words[0]}", "STEPC_DTYPE_MISMATCH"
            )
        try:
            self._ids.update(self._binding.step_some([param]))
        except ObstacleError as error:
            raise errors.TensorError(str(error), error.status) from None
        self._stepped.add(id(param))
        if not self._binding.keeps_gradients:
            param.grad = None

    def compare(self) -> None:
        """That ranks step with the same, where that is due."""
        self._binding.compare(self._optimizer())

    def end(self) -> None:
        self._binding.end(self._ids)

    def abandon(self) -> None:
        """Ends it where the pass has ended with an error."""
        self._binding.end(self._ids, abandons=self.crosses)


class BackwardSteps:
    """``fused_backward=True``: what an optimizer has that is stepped in ``loss.backward()``.

    The hooks do not keep the optimizer, and go with it.
    """

    _DOING = "fused_backward=True"

    def __init__(self, optimizer):
        self._optimizer = weakref.ref(optimizer)
        self._step: BackwardStep | None = None
        self._pass: weakref.ref | None = None  # what autograd has until the pass ends
        self._norms: Norms | None = None  # in the pass that measures them
        self._knows_norm = False  # in the pass behind it
        self.reports: dict[str, float] = {}  # of the clipping of the last step
        self._hooks = GradientHooks(self.came, optimizer)
        self._watched: dict[int, weakref.ref] = {}  # by id(), parameters with a hook
        self._late: set[int] = set()  # those that have none, as the end of the step sums them
        self.watch(optimizer)

    def watch(self, optimizer) -> None:
        """Has hooks on all parameters that may get a gradient now, but where the end of the step
        sums gradients over ranks first."""
        known = self._late
        new = [p for p in trained(optimizer) if not self._watches(p) and id(p) not in known]
        if new:
            self._late = optimizer._summed_at_step()
        for param in new:
            if id(param) not in self._late:
                self._watched[id(param)] = weakref.ref(param)
                self._hooks.add(param)

    def _watches(self, param: torch.Tensor) -> bool:
        known = self._watched.get(id(param))
        return known is not None and known() is param

    @property
    def has_begun(self) -> bool:
        """Whether a step is on its way: parameters are new, and counts are not."""
        return self._step is not None and self._step.is_current()

    # --- The pass ---------------------------------------------------------------

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
        self._norms = Norms(optimizer, self._DOING, optimizer.loss_scale, clip.norm_type)
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
            raise wants_norm(optimizer)
        if self.drop_broken():
            raise errors.StepcError(
                f"{_BROKEN}; this pass is of parameters from before that (zero_grad() in front of "
                "the forward pass ends one that broke off)"
            )
        if not self.has_begun:
            # What has no hook yet is stepped by step().
            self._begin(optimizer, lambda p: p is param or not self._watches(p))
        if self._step.has_stepped(param):
            raise errors.StepcError(
                f"{name_of(optimizer, param)} has been stepped since the last step(): with "
                "fused_backward=True call step() after each backward pass. Gradients of several "
                "passes, or of several uses that are reduced apart, cannot be added up"
            )
        if self._step.crosses:
            self._watch_pass()
        self._step.take(param)

    def _begin(self, optimizer, ours: Callable[[torch.Tensor], bool]) -> None:
        self._step = BackwardStep(optimizer, self._DOING, ours)

    def _watch_pass(self) -> None:
        """Has autograd say that the pass has ended. One that breaks off drops what would."""
        if self._pass is not None:
            return

        def end() -> None:
            self._pass = None

        self._pass = weakref.ref(end)
        torch.autograd.Variable._execution_engine.queue_callback(end)

    # --- Its end ----------------------------------------------------------------

    def forget(self) -> None:
        """The step that a pass began is of no use any more."""
        self._step = self._pass = None

    @property
    def is_broken(self) -> bool:
        """Whether an error has ended a pass in which gradients cross."""
        return self._pass is not None and self._pass() is None

    def drop_broken(self) -> bool:
        """Where it is so: other ranks, which wait for gradients, are told that they will not come.
        True where they are."""
        if not self.is_broken:
            return False
        self._pass = None
        if not self.has_begun:
            return False
        begun, self._step = self._step, None
        optimizer = self._optimizer()
        with _midway(optimizer):
            begun.abandon()
        return True

    def end(self, optimizer) -> bool:
        """Ends the step that a backward pass began. False where none did. Parameters that have
        a gradient by other ways, as by hand, are stepped with it."""
        if self.drop_broken():
            raise errors.StepcError(_BROKEN)
        self.watch(optimizer)
        every = [p for p in trained(optimizer) if p.grad is not None]
        rest = [p for p in every if id(p) not in self._late]
        if not self.has_begun:
            self._step = None
            if rest and optimizer._norm_clip is not None:
                raise wants_norm(optimizer)
            if optimizer._zero is None:
                return False
        if getattr(optimizer, "found_inf", None) is not None:
            raise errors.StepcError(
                "a GradScaler has nothing to unscale where gradients are stepped in the backward "
                "pass; give the optimizer loss_scale= and call opt.backward(loss)"
            )
        with _midway(optimizer):
            if not self.has_begun:  # others may have
                self._begin(optimizer, lambda param: True)
            self._end_with(optimizer, rest)
        return True

    def _end_with(self, optimizer, rest: list[torch.Tensor]) -> None:
        for param in () if self._step.keeps_gradients else rest:
            if self._step.has_stepped(param):
                raise errors.StepcError(
                    f"{name_of(optimizer, param)} has a second gradient in this step, which is "
                    "of no use to it (zero_grad() drops it)"
                )
        self._step.compare()
        begun, self._step = self._step, None
        try:
            for param in rest:
                if not begun.has_stepped(param):
                    begun.take(param)
        except BaseException:
            begun.abandon()
            raise
        begun.end()


@contextlib.contextmanager
def _midway(optimizer) -> Iterator[None]:
    """What is interrupted here, or not answered by other ranks, may have been done or not."""
    try:
        yield
    except errors.CommunicationError as error:
        if not isinstance(error, errors.DisagreementError | errors.AbandonedError):
            optimizer._poison = str(error)
        raise
    except errors.StoreError as error:  # parameters before it have been stepped
        if not error.unstepped:
            optimizer._poison, optimizer._is_torn = str(error), True
        raise
    except Exception as error:
        binding = optimizer._binding
        if binding is not None and binding.crosses and binding.is_poisoned():
            optimizer._poison = str(error)
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
            self._refuse_poisoned()
            with _midway(self):
                step = BackwardStep(self, "a fused backward pass", lambda param: False)
                try:
                    with hooked(trained(self), step.take):
                        loss.backward()
                except BaseException:
                    step.abandon()
                    raise
                step.end()

    def _norm_in_backward(self, loss: torch.Tensor, scale: float) -> torch.Tensor:
        """The 2-norm of all gradients over ``scale``, as one vector, of all ranks; frees them
        and keeps the graph for the pass that steps."""
        with self._locked(), within(self._timeout):
            self._refuse_poisoned()
            with _midway(self):
                norms = Norms(self, "the norm of a fused backward pass", scale, 2.0)
                with hooked(trained(self), norms.take):
                    return norms.measure(loss)
