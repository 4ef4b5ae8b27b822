# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An optimizer from any definition."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os

import torch

from ... import errors
from ...definition import Definition
from ...interface import Interface, Options
from ..binding.features import KEYWORDS, Features, hyper_names
from ..binding.flags import check_package
from ..binding.groups import rules_of
from ..binding.placement import Place
from ..binding.precision import MASTERS
from ..ranks import arguments as _on_ranks
from ..step.backward_checks import in_two_passes
from ..step.compiled import CompiledStep
from ..step.saving import SCALARS
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import view_of
from .checks import shapes_of

# Keys of a group that are no values of the definition: torch's, its schedulers',
# a name for the user, and what rules see in place of a parameter's shape.
_KEYS_OF_TORCH = ("params", "param_names", "initial_lr", "name", SCALARS, VIEW)


class Optimizer(CompiledStep, torch.optim.Optimizer):
    """The optimizer that a definition, or a compiled package, describes.

    Each hyper-parameter and option of the definition is a key of the param
    groups, by its own name; hyper-parameters may change at any step. A group's key
    ``view`` says in which shape rules see its parameters, as
    ``"o i h w -> o (i h w)"``; with more dims than two each matrix is stepped by itself where
    it gets a rule of whole matrices that has two. ``state``
    has ``step`` and the states of the definition, in the definition's names:
    float32, or float64 beside float64 parameters, in the shape of the parameter,
    or with dims of 1 where the definition has them.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        definition: path of a ``.mlir`` definition or of a ``.stepc`` package.
        static_grads: promises that each ``.grad``, once there, stays the same
            tensor in the same memory, as do the parameters; they are then not
            looked at again in each step. ``zero_grad`` then zeroes in place.
        exclusive_writes: promises that between steps parameters are written through
            torch's operations alone; see
            :class:`~stepc.torch.step.compiled.CompiledStep`.
        reproducible: sums whose bits do not depend on the order of additions; see the same.
        fused_backward: steps each parameter in the backward pass; see the same.
        clip: :class:`~stepc.torch.ClipByValue`, :class:`~stepc.torch.ClipByNorm`,
            or a list of them, applied in its order to the gradients of all groups.
        loss_scale: what the loss was multiplied by, a number, or
            :class:`~stepc.torch.DynamicLossScale`; gradients are divided by it
            before all else.
        zero, layouts, reduce_dtype, process_group, timeout, check_every: over ranks; see
            :class:`~stepc.torch.ranks.arguments.OnRanks`.
        master, state_dtype, rounding, seed, place: how parameters and states are kept; see the
            same.
        hypers_and_options: values by name; others have the definition's default.

    A package does the clipping and unscaling that it was compiled with
    (``stepc --fragment``), and is refused where it was compiled without; so it is where
    ``reproducible=True`` and it was compiled without ``--reproducible``.

    Raises, at construction, TypeError for a name that the definition does not
    have and for a value of another kind, DefinitionError (file, line and column)
    for a definition that does not parse, PackageError for a damaged package.
    """

    _attributes = ("_definition", "_interface")

    def __init__(
        self,
        params,
        definition: str | os.PathLike,
        *,
        static_grads: bool = False,
        exclusive_writes: bool = False,
        reproducible: bool = False,
        fused_backward: bool = False,
        clip=None,
        loss_scale=None,
        master: str | None = None,
        state_dtype=None,
        rounding: str | None = None,
        seed: int = 0,
        place: Place | None = None,
        **hypers_and_options,
    ) -> None:
        self._definition = Definition.open(definition)
        more = {n: hypers_and_options.pop(n) for n in KEYWORDS if n in hypers_and_options}
        others = _on_ranks.KEYWORDS
        ranks = {n: hypers_and_options.pop(n) for n in others if n in hypers_and_options}
        own = ()
        if fused_backward:
            own = in_two_passes(clip, loss_scale, reproducible, ranks.get("zero"))[1:]
        self._given = Features.of(*(own or (clip, loss_scale)), **more)
        self._interface = self._without_features(self._definition.interface())
        _check_own_names(self._interface, self._definition)
        if reproducible and self._definition.package_bytes is not None:
            check_package(self._definition.path, self._definition.package(()).manifest)
        self._interface.check_names(hypers_and_options)
        defaults = {**dict(self._interface.hypers), **dict(self._interface.options)}
        defaults.update(hypers_and_options)
        for name, value in hypers_and_options.items():
            self._check_value(name, value)
        self._check_variant(defaults)
        super().__init__(
            params,
            defaults,
            static_grads=static_grads,
            exclusive_writes=exclusive_writes,
            reproducible=reproducible,
            fused_backward=fused_backward,
            clip=clip,
            loss_scale=loss_scale,
            **ranks,
            **more,
            master=master,
            state_dtype=state_dtype,
            rounding=rounding,
            place=place,
            seed=seed,
        )

    def _without_features(self, interface: Interface) -> Interface:
        """The definition's own part; PackageError where a package lacks the rest."""
        if self._definition.package_bytes is None:
            return interface
        names = self._feature_names(interface)
        for feature in self._features:
            missing = set(hyper_names(interface, (feature,))) - set(interface.hyper_names)
            if missing:
                raise errors.PackageError(
                    f"package '{self._definition.path}' was compiled without the fragment "
                    f"'{feature._fragment}', which {feature!r} needs",
                    "STEPC_UNKNOWN_NAME",
                )
        names = {*names, *self._feature_options(interface)}
        hypers = tuple((name, value) for name, value in interface.hypers if name not in names)
        options = tuple((name, value) for name, value in interface.options if name not in names)
        return dataclasses.replace(interface, hypers=hypers, options=options)

    def _check_variant(self, group: dict) -> None:
        """PackageError where a package has no variant for a group's options."""
        values = {name: float(group[name]) for name in self._interface.hyper_names}
        if self._definition.package_bytes is not None:
            whole = self._definition.interface()
            names = self._feature_names(whole)
            values.update(zip(names, self._feature_values(), strict=True))
            hypers = tuple(values[name] for name in whole.hyper_names)
            options = {**self._read_options(group), **self._feature_options(whole)}
            self._definition.check_options(options, hypers)

    def _check_value(self, name: str, value) -> None:
        if name in self._interface.option_names:
            is_switch = isinstance(dict(self._interface.options)[name], bool)
            if isinstance(value, bool) != is_switch or not isinstance(value, int):
                expected = "True or False" if is_switch else "an integer"
                raise TypeError(f"option '{name}' is {value!r}, expected {expected}")
            return
        try:
            float(value)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"hyper-parameter '{name}' is {value!r}, expected a number "
                "or a tensor of one element"
            ) from None

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; its values are checked as those of
        the constructor are."""
        if isinstance(param_group, dict):
            given = {k: v for k, v in param_group.items() if k not in _KEYS_OF_TORCH}
            self._interface.check_names(given)
            for name, value in given.items():
                self._check_value(name, value)
            self._check_variant({**self.defaults, **given})
        super().add_param_group(param_group)

    def _check_saved(self, state_dict: dict) -> None:
        interface = self._interface
        for number, group in enumerate(state_dict["param_groups"]):
            for name in (*interface.hyper_names, *interface.option_names):
                if name not in group:
                    raise ValueError(
                        f"group {number} of the loaded state has no '{name}', which optimizer "
                        f"'{interface.name}' needs; it is of another optimizer"
                    )

    @property
    def _hypers(self) -> dict[str, str]:
        return {name: name for name in self._interface.hyper_names}

    def _get_definition(self) -> Definition:
        return self._definition.with_fragments(self._fragments)

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        return tuple([float(group[name]) for name, _ in self._interface.hypers])

    def _steps_one_by_one(self, group: dict) -> bool:
        """Whether a matrix of the group gets a rule of whole matrices that has two dims."""
        if view_of(group) is None:
            return False
        rules = rules_of(self)
        number = next(n for n, own in enumerate(self.param_groups) if own is group)
        shapes = {shape[-2:] for _, shape in shapes_of(group) if len(shape) > 2}
        found = (rules.find(number, shape).rule for shape in shapes)
        return any(rule is not None and rule.needs_matrices and len(rule.dims) == 2
                   for rule in found)  # fmt: skip

    def _read_options(self, group: dict) -> Options:
        return {name: type(default)(group[name]) for name, default in self._interface.options}


def _check_own_names(interface: Interface, definition: Definition) -> None:
    """DefinitionError where a group or a parameter's state has a key of that name already, or
    the constructor an argument: nobody could say which is meant."""
    arguments = {*inspect.signature(Optimizer.__init__).parameters, *KEYWORDS, *_on_ranks.KEYWORDS}
    owners = {
        "an argument of stepc.torch.Optimizer": arguments,
        "a key of param_groups": set(_KEYS_OF_TORCH),
    }
    of_state = {"a key of each parameter's state": {"step", *MASTERS.values()}}
    for kind, names, of in (
        ("hyper-parameter", interface.hyper_names, owners),
        ("option", interface.option_names, owners),
        ("state", interface.states, of_state),
    ):
        for name, (owner, taken) in itertools.product(names, of.items()):
            if name in taken:
                raise errors.DefinitionError(
                    f"{definition.path}: error: {kind} '{name}' of optimizer "
                    f"'{interface.name}' has the name of {owner}"
                )
