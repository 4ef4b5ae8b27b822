# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part that all optimizers share: a ``torch.optim.Optimizer`` whose step is
compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from ... import _log, errors
from ...definition import Definition
from ...interface import Options
from ..binding import features as _features
from ..binding import hypers as _hypers
from ..binding.binding import Binding
from ..binding.flags import check_flags
from ..binding.groups import precompile
from ..binding.placement import Placement
from ..binding.precision import Precision
from ..binding.rules import OfShape
from ..binding.state_map import StateMap
from ..ranks import arguments as _on_ranks
from ..ranks.arguments import OnRanks, said_of_tensors
from ..ranks.distributed import as_seen, make_binding
from ..ranks.exchanges import within
from ..ranks.parts import is_distributed
from ..ranks.zero.settings import one_by_one
from ..tensors.devices import captures_steps_of
from ..tensors.members import ObstacleError
from . import modes as _modes
from .account import account
from .apart import Apart, step_apart, without_gradients
from .averages import Averages
from .backward_checks import check as check_fused_backward
from .backward_checks import in_two_passes
from .durable import Durable
from .eager import step_eagerly, why_eager
from .fused_backward import BackwardSteps, InBackward
from .gradients import Gradients
from .lock import Lock
from .report import StepReport
from .saving import Saving
from .scalars import KeptScalars
from .signature import signature_of


class CompiledStep(
    OnRanks, Averages, Precision, Placement, KeptScalars, Durable, Saving, Gradients
):
    """Mix-in before a class of ``torch.optim``: replaces ``step``.

    A class gives ``_zoo_name`` (or overrides ``_get_definition``), says in the
    tables ``_hypers`` and ``_options`` where its groups have the values of the
    definition, and in ``_eager_class`` which class of torch has the same step.

    All classes take, by keyword:

    static_grads: promises that each ``.grad``, once there, stays the same tensor
        in the same memory, as do the parameters; they are then not looked at
        again in each step. ``zero_grad`` then zeroes in place.
    exclusive_writes: promises that between steps nobody writes parameters but through
        torch's own operations on them (so not through ``.data``); both Adafactors and
        LARS then keep a parameter's mean square from step to step, which saves reading
        it. One parameter a step is looked at: StaleStatisticsError where it was written.
        Without effect on what is spread over ranks.
    reproducible: makes every sum of the step, of elements and over tensors, so that its
        bits do not depend on the order of additions: from the same gradients the same
        parameters and states to the bit, on any number of ranks and in any layout. Not
        with exclusive_writes. It takes another traversal and another exchange for a sum.
    fused_backward: steps each parameter in ``loss.backward()``, as soon as its gradient is
        there, and frees the gradient; ``step`` then ends the step. With plain parameters, with
        ``zero``, and with DTensors, as FSDP2's. ``ClipByNorm`` takes two passes: see
        ``backward``. Without ``zero`` not with what else computes something of all tensors, and
        not behind DistributedDataParallel: StatusError, StepcError.
    clip: ``ClipByValue``, ``ClipByNorm`` or a list of them, applied in its order
        to the gradients of all groups.
    loss_scale: a number that gradients are divided by before all else, or
        ``DynamicLossScale()``; see ``scale``.
    zero: ``Zero(...)``, over ranks that have whole parameters.
    layouts, reduce_dtype, process_group, timeout, check_every: over ranks; see
        :class:`~stepc.torch.ranks.arguments.OnRanks`.
    average: ``EMA()`` or ``SWA()`` of the parameters, kept by the step; see
        ``averaged_parameters``.
    accumulation_steps: how many backward passes gradients are the sum of; the step
        divides by it.
    skip_nonfinite: leaves out a step with a gradient that is Inf or NaN.
    param_copy: ``torch.bfloat16``, say: the step writes a copy of each new parameter
        in that dtype; see ``parameter_copies``.
    master: the f32 behind each bfloat16 or float16 parameter: "f32" keeps it as the state
        ``master``, "remainder" as the 16 bits that the parameter lacks. Both leave the
        same bits in all steps.
    state_dtype: of states beside parameters that are not float64: torch.bfloat16, torch.float16,
        torch.float32 (default), "q8", "f8_e4m3" or "q4", codes of 8 and 4 bits (docs/states.md),
        for all, or a dict by name; with codes also by patterns of parameters' names.
    rounding: "stochastic" rounds what is stored as bfloat16, parameters and states, up
        as often as the value is near the upper neighbour, so that the mean is the value.
        Random bits are of ``seed`` (to 2**53), the step count of the parameter, its place
        in the groups and the element: the same on any threads and ranks.
    place: ``Place("disk", path=...)`` keeps states in a file between steps, which bring them
        into windows of memory (docs/placement.md). With ``durable=True`` that file has each step,
        and ``recover`` goes on with it.
    """

    _zoo_name: str | None = None
    _hypers: dict[str, _hypers.Source] = {}
    _hyper_readers: tuple[Callable[[dict], float], ...] = ()  # made from it
    _options: dict[str, str | Callable[[dict], bool | int]] = {}
    _eager_class: type | None = None
    _keeps_step = True  # whether state has the key "step"
    _dropped_dims: dict[str, int] = {}  # a state's kept dim that `state` does not show
    _scalar_states: frozenset[str] = frozenset()  # of one element, `state` shows them 0-d
    _transient_states: frozenset[str] = frozenset()  # that the original class only notes down
    _attributes: tuple[str, ...] = ()  # that its constructor sets, for copies; those of bases too
    _compiled_where: dict[str, object] = {}  # values in a group; with others torch's own step

    # Class attributes, so that copies and unpickled objects start without.
    _static_grads = False
    _exclusive_writes = False
    _reproducible = False
    _why_not_in_backward: str | None = None  # of a class that does more than a step
    _needs_unscaled = False  # whether a GradScaler found that it cannot be done inside
    _binding: Binding | None = None
    _captured: tuple[Binding, ...] = ()  # those with steps in CUDA graphs
    _poison: str | None = None  # what ranks could not exchange; until a state is loaded
    _is_torn = False  # whether parameters and states are of two steps; likewise
    _warned: frozenset[str] = frozenset()  # reasons for torch's own step
    _apart: Apart | None = None  # parameters that torch steps beside compiled code
    _eager_reason: str | None = None  # of the last step of torch's own

    def __init__(
        self,
        *args,
        static_grads=False,
        exclusive_writes=False,
        reproducible=False,
        fused_backward=False,
        clip=None,
        loss_scale=None,
        master=None,
        state_dtype=None,
        rounding=None,
        seed=0,
        place=None,
        **kwargs,
    ):
        more = {name: kwargs.pop(name) for name in _features.KEYWORDS if name in kwargs}
        given = {name: kwargs.pop(name) for name in _on_ranks.KEYWORDS if name in kwargs}
        ranks = one_by_one(given) if given.get("zero") else given
        if fused_backward:
            flags = {"static_grads": static_grads, "exclusive_writes": exclusive_writes}
            check_fused_backward(self, {**flags, **more})
            own = in_two_passes(clip, loss_scale, reproducible, ranks.get("zero"))
            self._norm_clip, clip, loss_scale = own
        self._given = _features.Features.of(clip, loss_scale, **more)
        self._set_ranks(bool(fused_backward) or isinstance(self, InBackward), **ranks)
        self._set_precision(master, state_dtype, rounding, seed)
        self._set_placement(place)
        self._check_places(rounding)
        self._static_grads = bool(static_grads)
        self._exclusive_writes = bool(exclusive_writes)
        self._reproducible = bool(reproducible)
        check_flags(self)
        super().__init__(*args, **kwargs)
        # GradScaler unscales by itself; where ranks share the step it has to ask here.
        self._step_supports_amp_scaling = self._is_shared
        self._after_init()
        # From the start: what the user takes before the first step stays right.
        self.state = StateMap(self.state)
        self._check_reduced()
        self._arrange()
        if fused_backward:
            self._backward = BackwardSteps(self)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("_hypers"), dict):
            cls._hyper_readers = _hypers.readers_of(cls._hypers)
        cls._dropped_dims = cls._dropped_dims | dict.fromkeys(cls._scalar_states, -1)
        if issubclass(cls, torch.optim.Optimizer):
            cls.__signature__ = signature_of(cls, CompiledStep)

    # --- What a class says about itself ---------------------------------------

    def _after_init(self) -> None:
        """What a class does behind the constructor of torch's class."""

    def __str__(self) -> str:
        return f"{self!r}\n{account(self)}"

    def _get_definition(self) -> Definition:
        return Definition.from_zoo(self._zoo_name).with_fragments(self._fragments)

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        """The hyper-parameters in the order of ``_hypers``."""
        return tuple([read(group) for read in self._hyper_readers])

    def _read_options(self, group: dict) -> Options:
        """The definition's options, by name."""
        return {
            name: source(group) if callable(source) else bool(group[source])
            for name, source in self._options.items()
        }

    def _read_settings(self, group: dict) -> tuple:
        """All in the group that compiled code depends on, but for the floats."""
        return tuple(self._read_options(group).values())

    def _steps_one_by_one(self, group: dict) -> bool:
        """Whether the rules for a group's matrices take one: where a view has more dims, each of
        its matrices is stepped by itself."""
        return False

    def _options_of_shape(self, group: dict) -> OfShape | None:
        """What gives the integer options that follow from a tensor's whole shape, with nothing
        of the optimizer; None where none do."""
        return None

    def _words_of_shape(self, group: dict) -> str:
        """What they follow from, which ranks are to have alike."""
        return ""

    def _whole_shape(self, param: torch.Tensor) -> tuple[int, ...]:
        """Of the tensor of which a bound parameter may be a rank's part."""
        return tuple(param.shape)

    def _check_shapes(self, group: dict) -> None:
        """Raises ValueError for what the class does not step, by its shape or by that which the
        group's ``view`` gives it: when a group is added, and when a step is prepared."""

    # --- The step -------------------------------------------------------------

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Performs a single optimization step.

        Args:
            closure (Callable, optional): A closure that reevaluates the model
                and returns the loss.

        Compiles at the first call, or finds the package in the cache. Raises
        errors of :mod:`stepc.errors`; after one of them nothing has changed,
        except after STEPC_POISONED. An interrupt, KeyboardInterrupt say, goes on as it is:
        the step was made, or not begun; over several ranks, which may have gone on, the
        optimizer steps no more until a state is loaded.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_all()
        for scaling in self._scaling:
            scaling.after_step(self)
        return loss

    @property
    def last_step(self) -> StepReport | None:
        """What happened in the last compiled step, read when it is asked for; None
        before the first, and after what made the optimizer forget it: loading,
        copying, a step of torch's own."""
        binding = self._binding
        if binding is None:
            return None
        reports = binding.reports()
        for feature in self._scaling:
            if isinstance(feature, _features.LossScale):
                reports["loss_scale"] = float(feature.scale)
        if self._norm_clip is not None:
            reports.update(self._backward.reports)
        return StepReport(binding.was_skipped(), reports)

    @torch._disable_dynamo
    def _step_all(self) -> None:
        with self._locked(), within(self._timeout):
            self._step_locked()
            if self._placed is not None:
                self._commit_step()

    def _locked(self) -> Lock:
        # Made here and not in __init__, so that copies have their own.
        lock = self.__dict__.get("_lock") or self.__dict__.setdefault("_lock", threading.Lock())
        return Lock(lock)

    def _refuse_poisoned(self) -> None:
        if self._poison is not None:
            raise errors.StatusError(
                f"an earlier step failed midway: {self._poison}; load a state to go on",
                "STEPC_POISONED",
            )

    def _step_locked(self) -> None:
        self._refuse_poisoned()
        if _log.forked:
            _log.tell_of_fork(torch.get_num_threads())
        if self._backward is not None and self._backward.end(self):
            self._num_steps += 1
            return
        self._refuse_unkept()
        if self._reducer is not None:
            self._reducer.refuse_broken()
        self._refuse_scaler()
        if self._binding is not None:
            self._binding.check_capture(self)
        self._refuse_averages()
        _modes.refuse_fake(self)
        binding, self._binding = self._binding, None
        why = why_eager(self)
        if why is None:
            try:
                with _modes.outside():
                    self._compare_plain(binding)
                    binding = self._run(binding)
                self._binding = binding
                self._num_steps += 1
                return
            except ObstacleError as obstacle:
                alone = not self._is_shared
                may_go = obstacle.eager and self._eager_class is not None and alone
                if may_go and self._goes_apart(obstacle):
                    self._binding = binding
                    return self._step_locked()
                # torch's own step would take a rank's part for the whole.
                if not may_go:
                    raise errors.TensorError(str(obstacle), obstacle.status) from None
                why = str(obstacle)
            except errors.DisagreementError:
                self._binding = binding  # nothing was written, on any rank
                raise
            except BaseException as error:
                # Other ranks may have gone on; what was written before it stays.
                if isinstance(error, errors.CommunicationError):
                    self._poison = str(error)
                elif isinstance(error, errors.StoreError):
                    # On ranks others have made the step.
                    if error.torn or (is_distributed(self) and not error.unstepped):
                        self._poison, self._is_torn = str(error), True
                elif not isinstance(error, Exception) and is_distributed(self):
                    self._poison = f"{type(error).__name__} came in a step of several ranks"
                raise
            finally:
                if self._is_torn and self._poison is None:
                    self._poison = "it was interrupted"
                if self._binding is None:
                    self._keep_scalars(binding)
        step_eagerly(self, why)
        self._num_steps += 1

    def _goes_apart(self, obstacle: ObstacleError) -> bool:
        self._apart = self._apart or Apart()
        return self._apart.find(obstacle, self.param_groups)

    def _run(self, binding: Binding | None) -> Binding:
        """One step; returns the binding that made it."""
        taken = self._apart.taken() if self._apart is not None else []
        if taken:
            params = [param for _, param in taken]
            with without_gradients(params):  # what is to be refused is refused before anything
                binding = binding or self._bind(None)
                binding.prepare()
            step_apart(self, taken)
            with without_gradients(params):
                return binding if binding.run(self) else self._bind_and_step(binding)
        if binding is None or not binding.run(self):
            binding = self._bind_and_step(binding)
        return binding

    def _bind_and_step(self, previous: Binding | None) -> Binding:
        binding = self._bind(previous)
        if not binding.run(self):
            raise errors.StepcError("the optimizer changed while its step was being prepared")
        return binding

    def _bind(self, previous: Binding | None) -> Binding:
        if captures_steps_of(self.param_groups):
            # States would be taken from the memory of the graph, and code cannot be loaded.
            self._binding = previous
            raise errors.StepcError(
                "the first step, or one after a change, cannot be captured in a CUDA graph; make "
                "one before the capture"
            )
        self._keep_scalars(previous)
        return make_binding(self, previous)

    # --- Ahead of the first step ----------------------------------------------

    @torch._disable_dynamo
    def precompile(self, target: str | None = None) -> None:
        """Compiles what the first step will need, and puts it into the cache.

        ``target``: where that will be: None for where the parameters lie, "cpu" for any
        processor, or a target of the compiler, "sm_90", say (docs/cuda.md lists them). None
        of them is needed: a node without one can fill a cache (STEPC_CACHE_DIR) for others.
        Gradients are taken to have the dtype of their parameters unless they are there. A
        step inside a ``stepc.torch.GradScaler`` is another one, which is not made ahead.
        Raises as ``step``, and StepcError for parameters that are spread over ranks.
        """
        if is_distributed(self):
            raise errors.StepcError(
                "precompile() is for parameters that are whole, not spread over ranks"
            )
        with said_of_tensors():
            seen = as_seen(self)
        precompile(seen, target)

    # --- CUDA graphs ----------------------------------------------------------

    @torch._disable_dynamo
    def upload(self) -> None:
        """Brings hyper-parameters and the like to the device ahead of a CUDA graph.

        To be called before a graph with a captured ``step`` is launched, where the learning
        rate or another number in the groups has changed since: ``scheduler.step();
        opt.upload(); graph.replay()``. Steps that are not in a graph do it themselves, and
        parameters in the processor's memory need nothing. StepcError where more has changed
        than numbers, or nothing was stepped yet: the graph is then of no use.
        """
        with self._locked():
            if self._binding is None or not self._binding.upload(self):
                raise errors.StepcError(
                    "upload() is for an optimizer that has stepped and changed nothing since "
                    "but numbers in its groups; capture the step anew"
                )

    # --- Gradients ------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of all parameters, as torch's ``zero_grad``.

        With ``static_grads=True`` they are always zeroed in place: the promise
        is that they stay the same tensors.
        """
        super().zero_grad(set_to_none and not self._static_grads)
        if self._reducer is not None:
            self._reducer.clear()
        if self._backward is not None:
            if self._backward.is_broken:
                with self._locked(), within(self._timeout):
                    self._backward.drop_broken()
            self._backward.watch(self)  # also what was frozen

    def __getstate__(self) -> dict:
        self._refuse_torn()
        if self._binding is not None:
            self._binding.refresh_counts()
        kinds = [kind.__dict__.get("_attributes", ()) for kind in type(self).__mro__]
        return {
            **super().__getstate__(),
            **{name: getattr(self, name) for names in kinds for name in names},
            "_static_grads": self._static_grads,
            "_exclusive_writes": self._exclusive_writes,
            "_reproducible": self._reproducible,
            "_fused_backward": self._backward is not None,
            "_norm_clip": self._norm_clip,
            "_given": self._given,
            "_scalars": self._current_scalars(),
            **self._ranks_state(),
            **self._precision_state(),
            "_placed": self._placed,
        }

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if self.__dict__.pop("_fused_backward", False):  # of a copy, whose parameters are others
            self._backward = BackwardSteps(self)
