# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An optimizer from any definition."""

from __future__ import annotations

import os
import warnings

import torch

from ..definition import Definition
from ._compiled import CompiledStep, level_of_caller

# Keys of a group that are no values of the definition: torch's, its schedulers',
# and a name for the user.
_KEYS_OF_TORCH = ("params", "param_names", "initial_lr", "name")


class Optimizer(CompiledStep, torch.optim.Optimizer):
    """The optimizer that a definition, or a compiled package, describes.

    Each hyper-parameter and option of the definition is a key of the param
    groups, by its own name; hyper-parameters may change at any step. ``state``
    has ``step`` and the states of the definition, in the definition's names:
    float32, or float64 beside float64 parameters, in the shape of the parameter.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        definition: path of a ``.mlir`` definition or of a ``.stepc`` package.
        static_grads: as for :class:`stepc.torch.AdamW`.
        hypers_and_options: values by name; others have the definition's default.

    Raises, at construction, TypeError for a name that the definition does not
    have and for a value of another kind, DefinitionError (file, line and column)
    for a definition that does not parse, PackageError for a damaged package.
    """

    def __init__(
        self,
        params,
        definition: str | os.PathLike,
        *,
        static_grads: bool = False,
        **hypers_and_options,
    ) -> None:
        self._definition = Definition.open(definition)
        self._interface = self._definition.interface()
        self._interface.check_names(hypers_and_options)
        defaults = {**dict(self._interface.hypers), **dict(self._interface.options)}
        defaults.update(hypers_and_options)
        for name, value in hypers_and_options.items():
            self._check_value(name, value)
        self._definition.check_options(self._read_options(defaults), self._read_hypers(defaults))
        super().__init__(params, defaults)
        self._static_grads = bool(static_grads)

    def _check_value(self, name: str, value) -> None:
        if name in self._interface.option_names:
            if not isinstance(value, bool):
                raise TypeError(f"option '{name}' is {value!r}, expected True or False")
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
            group = {**self.defaults, **given}
            self._definition.check_options(self._read_options(group), self._read_hypers(group))
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
        names = {name for s in state_dict["state"].values() if isinstance(s, dict) for name in s}
        unknown = sorted(map(str, names - {"step", *interface.states}))
        if unknown:
            warnings.warn(
                f"stepc: the loaded state has {', '.join(map(repr, unknown))}, which optimizer "
                f"'{interface.name}' does not know; its states are "
                f"{', '.join(map(repr, interface.states)) or 'none'}",
                RuntimeWarning,
                stacklevel=level_of_caller(),
            )

    def _hyper_keys(self) -> tuple[str, ...]:
        return self._interface.hyper_names

    def _get_definition(self) -> Definition:
        return self._definition

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        return tuple([float(group[name]) for name, _ in self._interface.hypers])

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {name: bool(group[name]) for name, _ in self._interface.options}

    def __getstate__(self) -> dict:
        return {
            **super().__getstate__(),
            "_definition": self._definition,
            "_interface": self._interface,
        }
