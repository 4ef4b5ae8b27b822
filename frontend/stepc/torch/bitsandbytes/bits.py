# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the classes of bitsandbytes have in common: arguments that say in how many bits states are
kept, and its checkpoints."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable

import torch

from ..._codes import Codes
from ..binding.precision import Q8
from ..optimizers.checks import check_betas, check_lr
from ..optimizers.peer import Peer, not_negative
from ..tensors.callers import level_of_caller
from .percentile import PercentileClipping
from .saved import read_states

_FIELDS = ("optim_bits", "min_8bit_size", "max_unorm", "skip_zeros")  # that `args` has
_OF_OLD = ("percentile_clipping", "block_wise")  # and that it had before 0.50

# What has to be as it is by default, and why.
OF_BITS = {
    "max_unorm": (0.0, "norms of updates are not bounded"),
    "skip_zeros": (False, "elements whose gradient is 0 are stepped too"),
    "block_wise": (True, "each block of a state has a scale"),
}


@functools.cache
def tell_of_pages(of: str) -> None:
    """One warning for each class of which an optimizer was to be paged."""
    warnings.warn(
        f"stepc: is_paged of {of} makes no difference: states stay in memory",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )


def settings_of(arguments: dict, optim_bits: int) -> dict:
    """What the constructor's arguments, or ``args`` in their place, say of how states are kept.
    ValueError, and NotImplementedError in the words of bitsandbytes, for what is not there."""
    settings = {"optim_bits": optim_bits, "max_unorm": 0.0, "skip_zeros": False}
    settings |= {name: arguments[name] for name in ("min_8bit_size", *_OF_OLD)}
    args = arguments.get("args")
    if args is not None:
        missing = next((name for name in _FIELDS if not hasattr(args, name)), None)
        if missing:
            raise ValueError(
                f"args is {args!r}, expected None or an object with {', '.join(_FIELDS)}: it has "
                f"no '{missing}'"
            )
        given = (name for name in (*_FIELDS, *_OF_OLD) if hasattr(args, name))
        settings |= {name: getattr(args, name) for name in given}
    if settings["optim_bits"] not in (8, 32):
        raise NotImplementedError(
            f"Amount of optimizer bits not supported: {settings['optim_bits']}"
        )
    least = settings["min_8bit_size"]
    if settings["optim_bits"] == 8 and (type(least) is not int or least < 0):
        raise ValueError(f"min_8bit_size is {least!r}, expected an integer from 0 on")
    return settings


def with_bits(features: dict, settings: dict, states: tuple[str, ...] = ()) -> dict:
    """The features of an optimizer whose states, or these of them, have the bits of the settings.
    Of 0 elements there is no state."""
    if settings["optim_bits"] == 32:
        return features
    if (given := features.get("state_dtype")) is not None:
        raise ValueError(
            f"state_dtype is {given!r} beside 8 bits, expected None: 8 bits are state_dtype='{Q8}'"
        )
    codes = Codes(Q8, min_size=max(settings["min_8bit_size"], 1))
    return {**features, "state_dtype": dict.fromkeys(states, codes) if states else codes}


def constructor(of: type, *, without: tuple[str, ...] = (), **defaults) -> Callable[..., None]:
    """That of a class, without these arguments, which have their defaults, and with other defaults
    of others: for a class that is ``of`` it."""
    own = inspect.signature(of.__init__)
    own = own.replace(
        parameters=[
            one.replace(default=defaults.get(name, one.default))
            for name, one in own.parameters.items()
            if name not in without
        ]
    )

    def __init__(self, *given, **named) -> None:
        bound = own.bind(self, *given, **named)
        bound.apply_defaults()
        features = bound.arguments.pop("features")
        of.__init__(**bound.arguments, **features)

    __init__.__signature__ = own
    return __init__


class OfBits(PercentileClipping, Peer):
    """Mix-in before ``torch.optim.Optimizer``.

    ``_bits``: those that the class's name says, None where ``optim_bits`` says it;
    ``_named_bits``: what ``optim_bits`` has to be where the name says it. ``_paged``: whether the
    name says that. ``_of_theirs``: the definition's states by the names that bitsandbytes has.
    """

    _attributes = ("optim_bits", "is_paged")
    _bits: int | None = None
    _named_bits = 32
    _paged = False
    _of_theirs: dict[str, str] = {}
    _not_keys = (
        "optim_bits", "args", "min_8bit_size", "is_paged", "amsgrad", "percentile_clipping"
    )  # fmt: skip
    _only = OF_BITS
    _ranges = {
        "lr": check_lr,
        "eps": not_negative("epsilon value"),
        "betas": check_betas,
        "weight_decay": not_negative("weight_decay value"),
    }

    def _begin_bits(self, kind: type, arguments: dict, **more) -> None:
        """As :meth:`Peer._begin`, with what says how states are kept."""
        name, bits = type(self).__name__, self._bits
        if arguments.get("amsgrad"):
            raise ValueError(f"{name} does not support amsgrad=True")
        given = arguments.get("optim_bits", self._named_bits)
        if bits is not None and given != self._named_bits:
            raise ValueError(
                f"{name} only supports optim_bits={self._named_bits} "
                "(default value for compatibility)"
            )
        settings = settings_of(arguments, given if bits is None else bits)
        self.optim_bits = settings["optim_bits"]
        self.is_paged = self._paged or bool(arguments.get("is_paged", False))
        features = with_bits(arguments["features"], settings)
        self._set_percentile(settings["percentile_clipping"], features)
        self._begin(kind, {**arguments, **settings, "features": features}, **more)
        if self.is_paged:
            tell_of_pages(name)

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict) -> None:
        """Loads the optimizer state, also one that bitsandbytes saved, of 8 or of 32 bits: its
        codes are decoded exactly, and become codes of this optimizer's.

        ValueError for codes that are not of blocks, and of another shape than the parameter's.
        """
        super().load_state_dict(read_states(state_dict, self.param_groups, self._of_theirs))
