# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ranks by its arguments, :data:`KEYWORDS`. What follows from
it is in :mod:`._distributed`."""

from __future__ import annotations

import contextlib

import torch

from .. import errors
from ._dtensor import is_dtensor, picklable
from ._members import ObstacleError, parameter_names
from ._partitions import GivenParameters
from ._state_parts import StatePart

# What every class takes, with its default.
KEYWORDS = {
    "zero": 0,
    "process_group": None,
    "gradients": None,
    "bucket_bytes": None,
    "reduce_dtype": None,
    "overlap": True,
    "layouts": None,
}


class OnRanks:
    """Mix-in of :class:`CompiledStep`."""

    _mesh = None  # of an optimizer all of whose tensors are whole
    _layouts: tuple = ()  # what the user says of plain parameters
    _reducer = None  # of zero=2
    _zero = None  # how states are sharded over ranks that have whole parameters
    _shards = None  # what ColossalAI says of ranks
    _reduce_dtype: torch.dtype | None = None  # in which gradients cross ranks

    def _set_ranks(self, zero=0, layouts=None, reduce_dtype=None, **more) -> None:
        """Takes over the constructor's arguments; ValueError and TypeError."""
        if layouts is not None:
            from ._layouts import check_rules

            self._layouts = check_rules(layouts)
        if reduce_dtype is not None or zero != 0 or any(more[n] != KEYWORDS[n] for n in more):
            from ._zero_settings import check_reduce_dtype, settings

            check_reduce_dtype(reduce_dtype)
            self._zero = settings(zero, reduce_dtype=reduce_dtype, **more)
        self._reduce_dtype = reduce_dtype

    def _check_reduced(self) -> None:
        """ValueError where a dtype is given for what is never reduced here."""
        if self._reduce_dtype is None or (self._zero is not None and self._zero.local_gradients):
            return
        partial = any(how is not None and how.grad == "partial" for _, how in self._layouts)
        params = (p for group in self.param_groups for p in group["params"])
        if not partial and not any(map(is_dtensor, params)):
            raise ValueError(
                "reduce_dtype is of no use where no gradient is reduced here: that needs "
                "gradients='local', a Layout with grad='partial', or DTensors"
            )

    def _ranks_state(self) -> dict:
        """What pickling keeps of it."""
        names = ("_zero", "_layouts", "_shards", "_reduce_dtype")
        kept = {name: getattr(self, name) for name in names}
        return {name: value for name, value in kept.items() if value}

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
        from ._shards import Shards

        if self._zero is not None or self._layouts:
            raise ValueError("setup_distributed is of no use with zero or layouts")
        working = dict(shard_to_working_param or {})
        given = next((flag for flag in (is_zero, use_zero) if flag is not None), bool(working))
        self._keep_scalars(self._binding)
        self._shards = Shards(tp_group, dp_group if given else None, working)
        self._binding = self._told = None

    def _make_reducer(self) -> None:
        """With zero=2 the buckets of all parameters there are now."""
        if self._zero is None or self._zero.stage != 2:
            return
        from ._parts import Parts
        from ._reducer import GradientReducer

        if self._reducer is not None:
            self._reducer.remove()
        self._reducer = None
        parts = list(Parts(self, cut=False))
        try:
            self._reducer = GradientReducer(parts, self._zero)
        except ObstacleError as obstacle:
            raise errors.TensorError(str(obstacle), "STEPC_INVALID_ARGUMENT") from None

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's. With zero=2 gradients that wait for the step
        are forgotten."""
        super().add_param_group(param_group)
        given = self.__dict__.setdefault("_given_params", GivenParameters())
        given.add(self.param_groups[-1]["params"])
        if self._reducer is not None:
            self._make_reducer()

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        # Of a copy; loading a state comes here too, when others may stand in their place.
        if "_given_params" not in self.__dict__:
            given = self.__dict__["_given_params"] = GivenParameters()
            for group in self.param_groups:
                given.add(group["params"])

    def no_sync(self) -> contextlib.AbstractContextManager:
        """With zero=2: backward passes inside keep their gradients in ``.grad``, to which the
        next pass outside adds. Nothing otherwise."""
        return contextlib.nullcontext() if self._reducer is None else self._reducer.no_sync()

    _told = None  # what ranks have told each other (_distributed.py)

    def _parts(self) -> dict:
        """What this rank has of each parameter, by ``id()``: without a word to others."""
        from ._parts import Parts

        known = [] if self._told is None else self._told.parts
        if [id(part.param) for part in known] != self._param_ids():
            known = Parts(self)
        return {id(part.param): part for part in known}

    def describe_layouts(self) -> str:
        """How each parameter lies on ranks, as text: a table of its name, the shape of the
        whole and of what this rank steps, how it is cut and shared over which axes, how its
        gradient comes, and the shapes of its states where there are some; above it the ranks
        along each axis. Asks no other rank; the shape of a whole that only they know is "?"
        until the first step. Raises TensorError for a parameter that no layout matches.
        """
        from ._describe import describe_layouts
        from ._parts import meshes_of

        try:
            parts = list(self._parts().values())
            return describe_layouts(self, parts, meshes_of(parts))
        except ObstacleError as obstacle:
            raise errors.TensorError(str(obstacle), "STEPC_INVALID_ARGUMENT") from None

    def _param_ids(self) -> list[int]:
        return [id(param) for group in self.param_groups for param in group["params"]]

    # --- States that are parts ------------------------------------------------

    def _pack_parts(self, packed: dict) -> None:
        """Lets the states that are parts say so, in what ``state_dict`` has made."""
        parts = self._parts() if self._is_shared else {}
        for number, id_ in zip(_numbers(packed), self._param_ids(), strict=True):
            own = packed["state"].get(number)
            if not isinstance(own, dict):
                continue
            if id_ in parts:
                own = {name: parts[id_].saved(name, value) for name, value in own.items()}
            packed["state"][number] = {name: picklable(value) for name, value in own.items()}

    def _check_parts(self, state_dict: dict) -> None:
        """ValueError for a state that is another part than this rank has."""
        values = state_dict["state"]
        parts = self._parts() if values and self._is_shared else {}
        params = [p for group in self.param_groups for p in group["params"]]
        names = parameter_names(self.param_groups)
        for number, param, called in zip(_numbers(state_dict), params, names, strict=False):
            own = values.get(number)
            for name, value in own.items() if isinstance(own, dict) else ():
                if isinstance(value, torch.Tensor):
                    words = _strange(param, parts.get(id(param)), name, value)
                    if words:
                        raise ValueError(
                            f"state '{name}' of {called} {words}; full_state_dict() makes a state "
                            "that loads anywhere, torch.distributed.checkpoint one of parts"
                        )

    def _full_states(self) -> dict[int, dict]:
        """Whole states by ``id()`` of the parameter: all ranks together."""
        from ._distributed import make_binding
        from ._parts import is_distributed

        if not is_distributed(self):
            return {}
        binding = self._binding
        return (make_binding(self) if binding is None else binding).full_states()

    def _layout_of(self, param: torch.Tensor):
        """How a parameter lies on the mesh, as the plan is to be told: it is whole."""
        return None


def _numbers(packed: dict) -> list:
    return [number for group in packed["param_groups"] for number in group["params"]]


def _strange(param, part, name: str, value: torch.Tensor) -> str:
    """What of a loaded state cannot be this rank's, in words; "" where it can."""
    own = None if part is None else part.place
    if isinstance(value, StatePart):
        has = "has whole states" if own is None else f"has {own}"
        return "" if value.place == own else f"is {value.place}, this optimizer {has}"
    if is_dtensor(value) and not is_dtensor(param):
        return f"is a DTensor with placements {tuple(value.placements)}, the parameter is none"
    # With an extent of 1 it may be a row or a column, which lies otherwise: a step looks again.
    like = is_dtensor(value) and value.shape == param.shape and 1 not in param.shape
    if like and value.placements != param.placements:
        return (
            f"has placements {tuple(value.placements)}, the parameter has {tuple(param.placements)}"
        )
    if part is not None and part.is_bare(name, value):
        return "is a part that does not say which"
    return ""
