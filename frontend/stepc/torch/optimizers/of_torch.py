# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The classes of ``torch.optim`` with a compiled step, but for Muon, which not every torch has.

Each is torch's own class, which brings the constructor, its checks and the groups; what is here
is the definition, where in a group its numbers are, and what differs.
"""

from __future__ import annotations

import inspect

import torch

from ..binding.hypers import BETAS, Part, named
from ..step.compiled import CompiledStep
from ..tensors.dlpack import NARROW

# Behind what a class says of itself.
_ALL_SAY = """
    Everything else is as in :class:`torch.optim.{name}`: arguments, param groups, checkpoints.
    States of 16-bit parameters are float32. ``foreach``, and ``fused`` where the class has it,
    make no difference. ``differentiable`` and ``capturable``, where the class has them, and sparse
    gradients run torch's own step where torch has one, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """


def _as_in_torch(cls: type) -> type:
    """Of a class with the name of torch's: whose step is made in the place of a compiled one."""
    cls._eager_class = getattr(torch.optim, cls.__name__)
    if cls.__doc__ is not None:  # which python -OO leaves out
        own, more = map(inspect.cleandoc, (cls.__doc__, _ALL_SAY.format(name=cls.__name__)))
        cls.__doc__ = f"{own}\n\n{more}"
    return cls


class _AdamStep(CompiledStep):
    """What Adam and its kin have in common."""

    _hypers = named("lr", "eps", "weight_decay", **BETAS)


@_as_in_torch
class Adam(_AdamStep, torch.optim.Adam):
    """Adam; definition ``adam.mlir``.

    ``state`` has ``step``, ``exp_avg``, ``exp_avg_sq``, and ``max_exp_avg_sq`` with ``amsgrad``.
    """

    _zoo_name = "adam"
    _options = {
        "amsgrad": "amsgrad",
        "maximize": "maximize",
        # torch's Adam has it since 2.7.
        "decoupled_weight_decay": lambda group: bool(group.get("decoupled_weight_decay", False)),
    }


# torch's is a subclass of its Adam since 2.7.
_AdamWBase = Adam if issubclass(torch.optim.AdamW, torch.optim.Adam) else _AdamStep


@_as_in_torch
class AdamW(_AdamWBase, torch.optim.AdamW):
    """AdamW; definition ``adamw.mlir``.

    ``state`` has ``step``, ``exp_avg``, ``exp_avg_sq``, and ``max_exp_avg_sq`` with ``amsgrad``.
    """

    _zoo_name = "adamw"
    _options = named("amsgrad", "maximize")
    _compiled_where = {"decoupled_weight_decay": True}


@_as_in_torch
class Adamax(_AdamStep, torch.optim.Adamax):
    """Adam with the infinity norm; definition ``adamax.mlir``.

    ``state`` has ``step``, ``exp_avg`` and ``exp_inf``.
    """

    _zoo_name = "adamax"
    _options = named("maximize")


@_as_in_torch
class NAdam(_AdamStep, torch.optim.NAdam):
    """Adam with Nesterov momentum; definition ``nadam.mlir``.

    ``state`` has ``step``, ``mu_product``, ``exp_avg`` and ``exp_avg_sq``. ``mu_product`` has the
    type of the moments: float64 beside a float64 parameter, where torch has float32.
    """

    _zoo_name = "nadam"
    _hypers = {**_AdamStep._hypers, **named("momentum_decay")}
    _options = named("decoupled_weight_decay", "maximize")
    _scalar_states = frozenset({"mu_product"})


@_as_in_torch
class RAdam(_AdamStep, torch.optim.RAdam):
    """Adam with a rectified variance; definition ``radam.mlir``.

    ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``.
    """

    _zoo_name = "radam"
    _options = named("decoupled_weight_decay", "maximize")


@_as_in_torch
class SGD(CompiledStep, torch.optim.SGD):
    """SGD with momentum; definition ``sgd.mlir``.

    ``state`` has ``momentum_buffer`` where the momentum is not zero.
    """

    _zoo_name = "sgd"
    _hypers = named("lr", "momentum", "dampening", "weight_decay")
    _options = named("nesterov", "maximize")
    _keeps_step = False


@_as_in_torch
class RMSprop(CompiledStep, torch.optim.RMSprop):
    """RMSprop; definition ``rmsprop.mlir``.

    ``state`` has ``step``, ``square_avg``, ``momentum_buffer`` where the momentum is positive,
    and ``grad_avg`` where it is centered.
    """

    _zoo_name = "rmsprop"
    _hypers = named("lr", "alpha", "eps", "weight_decay", "momentum")
    _options = named("centered", "maximize")


@_as_in_torch
class Rprop(CompiledStep, torch.optim.Rprop):
    """Rprop; definition ``rprop.mlir``.

    ``state`` has ``step``, ``prev`` and ``step_size``.
    """

    _zoo_name = "rprop"
    _hypers = named(
        "lr",
        eta_minus=Part("etas", 0),
        eta_plus=Part("etas", 1),
        step_size_min=Part("step_sizes", 0),
        step_size_max=Part("step_sizes", 1),
    )
    _options = named("maximize")


@_as_in_torch
class Adadelta(CompiledStep, torch.optim.Adadelta):
    """Adadelta; definition ``adadelta.mlir``.

    ``state`` has ``step``, ``square_avg`` and ``acc_delta``.
    """

    _zoo_name = "adadelta"
    _hypers = named("lr", "rho", "eps", "weight_decay")
    _options = named("maximize")


@_as_in_torch
class ASGD(CompiledStep, torch.optim.ASGD):
    """Averaged stochastic gradient descent; definition ``asgd.mlir``.

    ``state`` has ``step``, ``eta``, ``mu`` and ``ax``. ``eta`` and ``mu`` have the type of the
    average: float64 beside a float64 parameter, where torch has float32.
    """

    _zoo_name = "asgd"
    _hypers = named("lr", "lambd", "alpha", "t0", "weight_decay")
    _options = named("maximize")
    _scalar_states = frozenset({"eta", "mu"})


@_as_in_torch
class Adagrad(CompiledStep, torch.optim.Adagrad):
    """Adagrad; definition ``adagrad.mlir``.

    ``state`` has ``step`` and ``sum``, from the beginning, as torch has it.
    """

    _zoo_name = "adagrad"
    _hypers = named("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    _options = named("maximize")

    def _after_init(self) -> None:
        # torch's sum has the parameter's dtype; narrow ones would round the initial value.
        initial = self.defaults["initial_accumulator_value"]
        for param, state in self.state.items():
            if param.dtype in NARROW:
                like = torch.preserve_format
                wide = torch.full_like(param, initial, dtype=torch.float32, memory_format=like)
                state["sum"] = wide


def _eps1(group: dict) -> float:
    """None stands for the epsilon of the dtype: for torch that of the first
    parameter of the group that is stepped; here of its first, and of a group that has none,
    as on a rank that only takes part, the usual one's."""
    eps1, params = group["eps"][0], group["params"]
    if eps1 is not None:
        return float(eps1)
    return torch.finfo(params[0].dtype if params else torch.float32).eps


@_as_in_torch
class Adafactor(CompiledStep, torch.optim.Adafactor):
    """Adafactor as torch has it; definition ``torch_adafactor.mlir``.

    ``state`` has ``step``, and ``row_var`` and ``col_var`` with a dim of 1, or ``variance`` for
    vectors. ``clip`` comes first; ``d`` clips the update.
    """

    _zoo_name = "torch_adafactor"
    _hypers = named("lr", "beta2_decay", "d", "weight_decay", eps1=_eps1, eps2=Part("eps", 1))
    _options = named("maximize")
