# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps inside the backward pass: each parameter as soon as it has its gradient,
which is freed at once. Of all gradients only one or two exist at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from ... import errors
from ..binding.binding import Binding
from ..ranks.accumulators import refuse_reducers
from ..tensors.members import ObstacleError, parameter_name, parameter_names
from .compiled import CompiledStep


class FusedBackward(CompiledStep):
    """Mix-in for optimizers whose definition needs no gradient but a tensor's own."""

    def _step_in_backward(self, loss: torch.Tensor) -> None:
        """``loss.backward()``, in which every parameter of this optimizer that gets a
        gradient is stepped and loses it.

        Gradients that were there before are of no use to it and are an error, and so is
        who reduces them over ranks, which is done after this. Where the backward pass fails,
        the parameters that came before stay stepped.
        """
        params = self._all_params()
        self._check_no_gradients()
        self._refuse_reducers("a fused backward pass")
        with self._locked():
            self._begin()
            stepped: set[int] = set()

            def step(param: torch.Tensor) -> None:
                stepped.update(self._binding.step_some([param]))
                param.grad = None

            try:
                with _hooked(params, step):
                    loss.backward()
            finally:
                self._binding.end(stepped)

    def _begin(self) -> None:
        """Begins a step."""
        binding, self._binding = self._binding, None
        if binding is None or not binding.begin(self):
            self._keep_scalars(binding)
            try:
                binding = Binding(self, binding, ahead=True)
            except ObstacleError as obstacle:
                raise errors.TensorError(str(obstacle), obstacle.status) from None
            if not binding.begin(self):
                raise errors.StepcError("the optimizer changed while its step was being prepared")
        self._binding = binding

    def _norm_in_backward(self, loss: torch.Tensor, scale: float) -> torch.Tensor:
        """The 2-norm of all gradients over ``scale``, as one vector; frees them and
        keeps the graph for the pass that steps."""
        self._refuse_reducers("the norm of a fused backward pass")
        norms: list[torch.Tensor] = []

        def measure(param: torch.Tensor) -> None:
            wide = param.grad.to(torch.promote_types(param.grad.dtype, torch.float32))
            norms.append(torch.linalg.vector_norm(wide / scale).double())
            param.grad = None

        with _hooked(self._all_params(), measure):
            loss.backward(retain_graph=True)
        norms = norms or [torch.zeros((), dtype=torch.float64, device="cpu")]
        return torch.linalg.vector_norm(torch.stack(norms))

    def _check_no_gradients(self) -> None:
        for number, group in enumerate(self.param_groups):
            for position, param in enumerate(group["params"]):
                if param.grad is not None:
                    raise errors.StepcError(
                        f"{parameter_name(group, number, position)} has a gradient before the "
                        "fused backward pass, which would step it with the sum "
                        "(zero_grad() drops it)"
                    )

    def _refuse_reducers(self, doing: str) -> None:
        every = (param for group in self.param_groups for param in group["params"])
        named = zip(parameter_names(self.param_groups), every, strict=True)
        refuse_reducers([(name, param) for name, param in named if param.requires_grad], doing)

    def _all_params(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]


@contextlib.contextmanager
def _hooked(params: list[torch.Tensor], hook: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Has ``hook`` called for each parameter once its gradient is whole."""
    handles = [param.register_post_accumulate_grad_hook(hook) for param in params]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
