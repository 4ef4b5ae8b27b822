# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ranks by its arguments, :data:`KEYWORDS`. What follows from
it is in :mod:`.distributed`."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator

import torch

from ... import errors
from ..tensors.members import ObstacleError
from ..tensors.partitions import GivenParameters
from ..tensors.patterns import check_view, views_of
from .dtensor import is_dtensor
from .exchanges import check_timeout, linger_at_exit
from .parts_in_states import PartsInStates
from .zero.settings import ARGUMENTS, check_reduce_dtype, settings

# What every class takes, with its default.
KEYWORDS = {
    "zero": 0,
    "process_group": None,
    **ARGUMENTS,
    "layouts": None,
    "timeout": None,
    "check_every": None,
}


class OnRanks(PartsInStates):
    """Mix-in of :class:`CompiledStep`, which takes by keyword:

    zero: :class:`~stepc.torch.Zero`, which says how ranks that have the same parameters share
        the states. The names of its fields beside ``zero=1`` or ``2`` are what was written
        before there was one; that works, and says so once.
    process_group: with ``check_every`` the ranks that have the same plain parameters.
    reduce_dtype: in which gradients cross ranks that ``layouts`` and DTensors have summed by the
        step; see ``Zero``. The step gets their mean as it is, also where parameters are
        bfloat16.
    layouts: for plain parameters that are parts of larger tensors, a list of pairs: a
        regular expression of names, and the ``Layout`` of those that it matches as a
        whole, or None for tensors that are whole; the first that matches counts.
    timeout: ``datetime.timedelta``, how long an exchange of the optimizer may take; by
        default as long as its process group says. CommunicationError for one that is not done
        by then; the optimizer then refuses to step until a state is loaded.
    check_every: after so many steps ranks compare, by a call of its own, what they step with:
        hyper-parameters, options, kept scalars, which parameters are frozen, counts of steps;
        with plain parameters, which are to be the same on all ranks of ``process_group``, also
        which have gradients, and the bits of the parameters. DisagreementError. With ``zero``,
        ``layouts`` and DTensors the environment's STEPC_CHECK is its default.
    """

    _mesh = None  # of an optimizer all of whose tensors are whole
    _layouts: tuple = ()  # what the user says of plain parameters
    _reducer = None  # of zero=2
    _zero = None  # how states are sharded over ranks that have whole parameters
    _shards = None  # what ColossalAI says of ranks
    _reduce_dtype: torch.dtype | None = None  # in which gradients cross ranks
    _timeout: datetime.timedelta | None = None  # of an exchange
    _check_every: int | None = None
    _compared = None  # the process group over which plain parameters are
    _num_steps = 0  # that came to their end
    _added_groups: tuple[int, ...] = ()  # numbers of those that the constructor did not have
    _is_made = False  # whether the constructor is done

    def _set_ranks(
        self,
        in_backward: bool,
        zero=0,
        layouts=None,
        reduce_dtype=None,
        timeout=None,
        check_every=None,
        **more,
    ) -> None:
        """Takes over the constructor's arguments; ValueError and TypeError. ``in_backward``:
        whether steps are made within the backward pass."""
        self._timeout = check_timeout(timeout)
        linger_at_exit()
        if check_every is not None:
            self._check_every = _number_of_steps("check_every", check_every)
            self._compared = None if zero else more.pop("process_group", None)
        if layouts is not None:
            from .layouts import check_rules

            self._layouts = check_rules(layouts)
        if reduce_dtype is not None or zero != 0 or any(more[n] != KEYWORDS[n] for n in more):
            check_reduce_dtype(reduce_dtype)
            self._zero = settings(zero, reduce_dtype=reduce_dtype, in_backward=in_backward, **more)
        self._reduce_dtype = reduce_dtype

    def _check_places(self, rounding: str | None) -> None:
        """ValueError for layouts that do not say where parts are, with a ``rounding`` whose random
        bits are of an element's place."""
        if rounding and self._layouts:
            from .layouts import check_places

            check_places(self._layouts)

    def _check_reduced(self) -> None:
        """ValueError where a dtype is given for what is never reduced here."""
        if self._reduce_dtype is None or (self._zero is not None and self._zero.local_gradients):
            return
        partial = any(how is not None and how.grad == "partial" for _, how in self._layouts)
        params = (p for group in self.param_groups for p in group["params"])
        if not partial and not any(map(is_dtensor, params)):
            raise ValueError(
                "reduce_dtype is of no use where no gradient is reduced here: that needs "
                "Zero(..., gradients='local'), a Layout with grad='partial', or DTensors"
            )

    def _ranks_state(self) -> dict:
        """What pickling keeps of it."""
        names = ["_zero", "_layouts", "_shards", "_reduce_dtype", "_timeout"]
        names += ["_check_every"] * (self._compared is None)  # a process group cannot be copied
        kept = {name: getattr(self, name) for name in names}
        return {name: value for name, value in kept.items() if value}

    def _is_check_due(self) -> bool:
        """Whether ranks are to compare what they step with before this step, by itself."""
        every = self._check_every
        if every is None and (said := os.environ.get("STEPC_CHECK")):
            every = _number_of_steps("STEPC_CHECK", said)
        return bool(every) and self._num_steps % every == 0

    def _compare_plain(self, binding) -> None:
        """Where that was asked for, and only the user knows that ranks have the same parameters."""
        if self._check_every is not None and self._is_check_due():
            from .alike import compare_replicas
            from .parts import is_distributed

            if not is_distributed(self):
                compare_replicas(self, binding, self._compared)

    def _refuse_torn(self) -> None:
        if self._is_torn:
            raise errors.StatusError(
                f"parameters and states are of two steps, as one failed midway: {self._poison}; "
                "load a state to go on",
                "STEPC_POISONED",
            )
        if self._backward is not None and self._backward.has_begun:
            raise errors.StatusError(
                "a backward pass has stepped parameters, whose states and counts are not told "
                "before step() ends the step",
                "STEPC_WRONG_STATE",
            )

    @property
    def _is_shared(self) -> bool:
        """Whether ranks step plain parameters together."""
        if self._zero is not None or self._shards is not None:
            return True
        return any(layout is not None for _, layout in self._layouts)

    def _refuse_scaler(self) -> None:
        if self._is_shared and getattr(self, "found_inf", None) is not None:
            raise errors.StepcError(
                "torch's GradScaler knows of an overflow on this rank alone, and other ranks step "
                "with it; use stepc.torch.GradScaler, or loss_scale=DynamicLossScale()"
            )

    def setup_distributed(
        self,
        tp_group=None,
        dp_group=None,
        shard_to_working_param: dict[int, torch.Tensor] | None = None,
        padding_map: dict | None = None,
        is_zero: bool | None = None,
        *,
        use_zero: bool | None = None,
    ) -> None:
        """Tells of ranks as ColossalAI's plugins do, with its optimizers' arguments.

        Args:
            tp_group: process group of tensor parallelism; a parameter with ``dist_layout`` is
                cut over it.
            dp_group: process group over which masters are cut.
            shard_to_working_param: from the ``id()`` of a master in the groups to the
                parameter of the model.
            padding_map: not needed.
            is_zero, use_zero: whether there are masters; by default, if the map has any.

        Raises ValueError for an optimizer with ``zero`` or ``layouts``. What cannot be
        stepped so, the next step refuses.
        """
        from .shards import Shards

        if self._zero is not None or self._layouts:
            raise ValueError("setup_distributed is of no use with zero or layouts")
        working = dict(shard_to_working_param or {})
        given = next((flag for flag in (is_zero, use_zero) if flag is not None), bool(working))
        self._keep_scalars(self._binding)
        self._shards = Shards(tp_group, dp_group if given else None, working)
        self._binding = self._told = None

    def _arrange(self) -> None:
        """With zero=2 makes the buckets of all parameters there are now, with
        ``flatten_parameters`` the memory in which they lie. TensorError."""
        from .parts import Parts

        self._is_made = True
        reduces = self._zero is not None and self._zero.stage == 2 and not self._zero.in_backward
        if not reduces and (self._zero is None or self._zero.flat is None):
            return
        with said_of_tensors():
            parts = Parts(self)
        if reduces:
            from .zero.reducer import GradientReducer

            self._reducer = self._reducer or GradientReducer(self)
            self._reducer.watch(parts)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's, before a step or after. With zero=1 and 2 the
        states and gradients of the others stay; every rank adds it."""
        super().add_param_group(param_group)
        added, number = self._added_groups, len(self.param_groups) - 1
        try:
            check_view(self.param_groups[number], number, bool(self._layouts))
            if self._is_made:
                self._added_groups = (*added, number)
                self._arrange()
        except BaseException:
            self._added_groups = added
            del self.param_groups[number]
            raise
        if self._is_made and self._backward is not None:
            self._backward.watch(self)
        given = self.__dict__.setdefault("_given_params", GivenParameters())
        given.add(self.param_groups[-1]["params"])

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        # Of a copy; loading a state comes here too, when others may stand in their place.
        if "_given_params" not in self.__dict__:
            given = self.__dict__["_given_params"] = GivenParameters()
            for group in self.param_groups:
                given.add(group["params"])

    def no_sync(self) -> contextlib.AbstractContextManager:
        """With zero=2: backward passes inside keep their gradients in ``.grad``, to which the
        next pass outside adds. Nothing otherwise; StepcError with ``fused_backward`` beside
        ``zero``."""
        if self._zero is not None and self._zero.in_backward:
            raise errors.StepcError(
                "no_sync() keeps gradients, which fused_backward=True frees as they come; "
                "zero=Zero(2) without it adds up several passes"
            )
        return contextlib.nullcontext() if self._reducer is None else self._reducer.no_sync()

    _told = None  # what ranks have told each other (distributed.py)
    _have_files = False  # whether they have all made their files of states

    def _parts(self) -> dict:
        """What this rank has of each parameter, by ``id()``: without a word to others."""
        from .parts import Parts

        told = self._told
        known = [] if told is None or told.views != views_of(self) else told.parts
        if [id(part.param) for part in known] != self._param_ids():
            with said_of_tensors():
                known = Parts(self)
        return {id(part.param): part for part in known}

    def _summed_at_step(self) -> set[int]:
        """The ``id()`` of parameters whose gradients ``zero`` has to sum over other ranks first."""
        if self._zero is None or not self._layouts:
            return set()
        return {id_ for id_, part in self._parts().items() if part.inner.sums_at_step}

    def describe_layouts(self) -> str:
        """How each parameter lies on ranks, as text: a table of its name, the shape of the
        whole and of what this rank steps, how it is cut and shared over which axes, how its
        gradient comes, and the shapes of its states where there are some; above it the ranks
        along each axis. Asks no other rank; the shape of a whole that only they know is "?"
        until the first step. Raises TensorError for a parameter that no layout matches.
        """
        from .describe import describe_layouts
        from .parts import meshes_of

        with said_of_tensors():
            parts = list(self._parts().values())
            return describe_layouts(self, parts, meshes_of(parts))

    def _param_ids(self) -> list[int]:
        return [id(param) for group in self.param_groups for param in group["params"]]

    def _place(self, member) -> None:
        """Says how a parameter lies on the mesh, as the plan is to be told: it is whole."""

    def _is_trained(self, param: torch.Tensor) -> bool:
        """Whether the parameter may get a gradient."""
        return param.requires_grad

    def _request_of(self, param: torch.Tensor) -> str:
        """What a variant is to be asked for that."""
        return ""

    def _calls_of(self, members: list) -> list[list]:
        """Those that the plan binds together."""
        return [members]

    _buckets: tuple[int, int, int] | None = None  # how much crosses at a time: see Plan.set_buckets
    _shares_sums = False  # whether one memory serves the sums of all buckets
    _measures_norm = False  # whether a pass of its own brings sums, which all have memory then
    _brought: frozenset[int] = frozenset()  # id() of parameters whose gradients the plan has


def _number_of_steps(name: str, given) -> int:
    """Of the argument or the variable; 0, of the variable alone, for never. ValueError."""
    least = 0 if isinstance(given, str) else 1
    try:
        number = int(given) if not isinstance(given, float | bool) else -1
    except (TypeError, ValueError):
        number = -1
    if number < least:
        raise ValueError(f"{name} is {given!r}, expected a number of steps")
    return number


@contextlib.contextmanager
def said_of_tensors() -> Iterator[None]:
    """TensorError for a parameter that cannot be stepped so."""
    try:
        yield
    except ObstacleError as obstacle:
        raise errors.TensorError(str(obstacle), "STEPC_INVALID_ARGUMENT") from None
