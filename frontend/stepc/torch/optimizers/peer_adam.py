# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the Adams of apex' descendants share: names of options, and counts in saved
states, which the originals have as integers."""

from __future__ import annotations

from collections import defaultdict

from ..binding.hypers import BETAS, named
from ..step.saving import SCALARS, adopted
from .peer import Peer


class SetsGradNone:
    """Mix-in: an attribute says what ``zero_grad()`` does."""

    set_grad_none = True
    _attributes = ("set_grad_none",)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Resets the gradients of all parameters; by default as ``set_grad_none``
        says."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)


class PeerAdam(Peer):
    """Mix-in before ``torch.optim.Optimizer``; definition ``cpu_adam.mlir``.

    ``_mode_name``: the attribute, and the option of the definition, that says whether
    the weight decay is decoupled. It is of the optimizer, ``bias_correction`` of a group.
    """

    _zoo_name = "cpu_adam"
    _mode_name = "adamw_mode"
    _hypers = named("lr", "eps", "weight_decay", **BETAS)

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {
            "adamw_mode": bool(getattr(self, self._mode_name)),
            "bias_correction": bool(group["bias_correction"]),
        }

    def _finish_saving(self, packed: dict) -> None:
        for state in packed["state"].values():
            if "step" in state:
                state["step"] = int(state["step"])

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), self._mode_name: getattr(self, self._mode_name)}


class PeerFusedAdam(SetsGradNone, PeerAdam):
    """The same; definition ``fused_adam.mlir``. ``_group_step``: one count for a group."""

    _zoo_name = "fused_adam"
    _group_step = False

    _not_keys = ("amsgrad", "adamw_mode", "adam_w_mode", "set_grad_none")

    def _begin_fused(self, kind: type, arguments: dict) -> None:
        if arguments["amsgrad"]:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        setattr(self, self._mode_name, 1 if arguments[self._mode_name] else 0)
        self.set_grad_none = arguments["set_grad_none"]
        self._begin(kind, arguments)

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {
            "adam_w_mode": bool(getattr(self, self._mode_name)),
            "bias_correction": bool(group["bias_correction"]),
            "group_step": self._group_step,
        }


class GroupCounts(PeerFusedAdam):
    """One count for a group, saved as the group's ``step``."""

    _group_step = True
    _keeps_step = False

    def _finish_saving(self, packed: dict) -> None:
        for group in packed["param_groups"]:
            scalars = group.pop(SCALARS, {})
            if "step" in scalars:
                group["step"] = int(scalars.pop("step"))
            if scalars:
                group[SCALARS] = scalars

    def _adopt(self, state_dict: dict) -> defaultdict:
        state = super()._adopt(state_dict)
        for group in self.param_groups:
            group[SCALARS] = {"step": float(group.pop("step", 0)), **group.get(SCALARS, {})}
        return state


class LastCounts(PeerFusedAdam):
    """A count for each parameter. What has moments and no count was saved by code that
    counted for the last parameter, or for the group: its is the largest of the group."""

    def _adopt(self, state_dict: dict) -> defaultdict:
        state = super()._adopt(state_dict)
        for group in self.param_groups:
            known = [state[p] for p in group["params"] if p in state]
            counts = [float(own["step"]) for own in known if "step" in own]
            most = max([float(group.pop("step", 0)), *counts])
            for param in group["params"]:
                own = state.get(param)
                if own and not float(own.get("step", 0)):
                    state[param] = {**own, "step": adopted(param, "step", most)}
        return state
