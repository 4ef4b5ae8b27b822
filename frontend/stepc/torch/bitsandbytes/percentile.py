# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Clipping by a percentile of past norms, as bitsandbytes had it before 0.50.

A parameter has the squared norms of its last 100 gradients, in the first step 100 times the first
one (``functional.percentile_clipping``; ``kPercentileClipping`` of its kernels). Where the norm is
above the root of the ``p``-th of them, in rising order from 0 on, the gradient is made as long as
that. A norm must be known before a parameter is stepped, and ring and order are no operations of
the language: so it is done ahead of the compiled step, whose gradients are then copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist

from ... import errors
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import exchanging, within
from ..ranks.shared_memory import all_reduce
from ..tensors.devices import captures_steps_of

NONE = 100  # which clips nothing, and how many norms there are
VECTOR, COUNT = "gnorm_vec", "gnorm_step"  # in a saved state; bitsandbytes has the former
_NOTED = "norms"  # in the note of a step that outlives its process
# What computes the gradient of the step, or has it earlier or elsewhere.
_REFUSED = ("loss_scale", "accumulation_steps", "fused_backward", "static_grads", "layouts")


@dataclass(frozen=True)
class Norms:
    """Of a parameter: squared norms of its last gradients, in float32, and how many steps made
    them, which says where the next one goes."""

    squares: torch.Tensor
    count: int

    @staticmethod
    def after(before: Norms | None, square: float) -> Norms:
        """With that of another step. Norms that are all 0, as of a step that is made for its
        states alone, are as none: they would make everything 0 that comes."""
        count = 1 if before is None else before.count + 1
        if before is None or not before.squares.any():
            return Norms(torch.full((NONE,), square, dtype=torch.float32, device="cpu"), count)
        squares = before.squares.clone()
        squares[count % NONE] = square
        return Norms(squares, count)

    def scale(self, percentile: int) -> float:
        """Of the last gradient, 1 where it is not too long."""
        squares = self.squares[self.count % NONE], self.squares.sort().values[percentile]
        # torch's root of float32 is not always the nearest one.
        roots = [math.sqrt(float(square)) for square in squares]
        norm, most = torch.tensor(roots, dtype=torch.float32, device="cpu")
        return float(most / norm) if norm > most else 1.0


class PercentileClipping:
    """Mix-in before a :class:`~stepc.torch.step.compiled.CompiledStep`."""

    _attributes = ("percentile_clipping", "_norms", "_needs_unscaled")
    percentile_clipping = NONE
    _norms: dict[torch.Tensor, Norms] = {}
    _norms_of_step: dict[torch.Tensor, Norms] = {}  # that is being made

    def _set_percentile(self, percentile: int, features: dict) -> None:
        """Before the constructor of the base. ValueError for what is no percentile, and for
        features that make another gradient."""
        if type(percentile) is not int or not 0 <= percentile <= NONE:
            raise ValueError(
                f"percentile_clipping is {percentile!r}, expected a whole number from 0 to 100"
            )
        self.percentile_clipping, self._norms = percentile, {}
        found = {name: features.get(name) for name in _REFUSED}
        if found["accumulation_steps"] == 1:  # which sums nothing
            del found["accumulation_steps"]
        given = next((name for name, own in found.items() if own), None)
        if percentile != NONE and given:
            raise ValueError(
                f"percentile_clipping is {percentile} beside {given}, expected {NONE}: norms are "
                "of the gradients that are there before the step"
            )
        if percentile != NONE:
            self._needs_unscaled = True  # by a GradScaler, before the norms

    @torch._disable_dynamo
    def _step_all(self) -> None:
        if self.percentile_clipping == NONE:
            return super()._step_all()
        self._refuse_gradients()
        with within(self._timeout), torch.no_grad():
            squares = _squares(self)
        found = {param: Norms.after(self._norms.get(param), s) for param, s in squares.items()}
        given = []
        try:
            for param, norms in found.items():
                scale = norms.scale(self.percentile_clipping)
                if scale != 1.0 and param.grad is not None:
                    given.append((param, param.grad))
                    param.grad = param.grad.detach() * scale
            self._norms_of_step = found
            super()._step_all()
        finally:
            self._norms_of_step = {}
            for param, grad in given:
                param.grad = grad
        if self._binding is None or not self._binding.was_skipped():
            self._norms = {**self._norms, **found}

    def _refuse_gradients(self) -> None:
        """StepcError where gradients are summed in the step, or what a norm is has to be asked of
        the device."""
        why = None
        if self._layouts:
            why = "layouts"
        elif self._zero is not None and self._zero.local_gradients:
            why = "zero with gradients='local'"
        elif captures_steps_of(self.param_groups):
            why = "a step that is captured in a CUDA graph"
        if why:
            raise errors.StepcError(
                f"percentile_clipping={self.percentile_clipping} is not for {why}: norms are of "
                "the gradients that are there before the step"
            )

    def _finish_saving(self, packed: dict) -> None:
        super()._finish_saving(packed)
        states = packed["state"]
        for number, param in _numbered(packed, self):
            if (norms := self._norms.get(param)) is not None:
                more = {
                    VECTOR: norms.squares.clone(),
                    COUNT: torch.tensor(float(norms.count), dtype=torch.float32, device="cpu"),
                }
                states[number] = {**states.get(number, {}), **more}

    def _more_in_note(self) -> dict:
        """Of a step in a file: it is there before this optimizer has the step's norms."""
        norms = {**self._norms, **self._norms_of_step}
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        own = [(number, norms[param]) for number, param in enumerate(params) if param in norms]
        if not own:
            return {}
        places = [(number, one.count) for number, one in own]
        return {_NOTED: (places, torch.stack([one.squares for _, one in own]))}

    def _take(self, note: dict) -> None:
        super()._take(note)
        places, squares = note.get(_NOTED, ((), ()))
        params = list(chain.from_iterable(group["params"] for group in self.param_groups))
        self._norms = {
            params[number]: Norms(own.clone(), count)
            for (number, count), own in zip(places, squares, strict=True)
            if self.percentile_clipping != NONE
        }

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict) -> None:
        """Loads the optimizer state, with the norms of ``percentile_clipping``, also those that
        bitsandbytes saved. Where it has none they begin anew."""
        states, norms = {}, {}
        for number, own in state_dict["state"].items():
            if isinstance(own, dict) and VECTOR in own:
                norms[number] = _norms_of(own)
                own = {name: v for name, v in own.items() if name not in (VECTOR, COUNT)}
            if own:  # a rank may have nothing else of a parameter
                states[number] = own
        super().load_state_dict({**state_dict, "state": states})
        called = dict(_numbered(state_dict, self))
        clips = self.percentile_clipping != NONE
        self._norms = {called[n]: own for n, own in norms.items() if clips and n in called}


def _numbered(packed: dict, optimizer):
    """The parameters with their numbers in a saved state."""
    saved = chain.from_iterable(group["params"] for group in packed["param_groups"])
    own = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return zip(saved, own, strict=False)


def _norms_of(own: dict) -> Norms:
    """ValueError for another number of norms."""
    squares = own[VECTOR].detach().to("cpu", torch.float32, copy=True).reshape(-1)
    if squares.numel() != NONE:
        raise ValueError(f"state '{VECTOR}' has {squares.numel()} norms, expected {NONE}")
    return Norms(squares, int(own.get(COUNT, own.get("step", 0))))


# --- Norms of whole gradients -------------------------------------------------


def _squares(optimizer) -> dict[torch.Tensor, float]:
    """The squared norm of each gradient, of all ranks' parts of it."""
    found: dict[torch.Tensor, torch.Tensor] = {}
    spread: dict[tuple, list] = {}
    for param in chain.from_iterable(group["params"] for group in optimizer.param_groups):
        if is_dtensor(param):
            key = tuple(p.is_replicate() for p in _placements(param))
            spread.setdefault((param.device_mesh, key), []).append(param)
        elif param.grad is not None:
            found[param] = _square(param.grad)
    for (mesh, replicated), params in spread.items():
        found |= _added_up(mesh, replicated, params)
    if not found:
        return {}
    device = next(iter(found.values())).device
    values = torch.stack([square.to(device) for square in found.values()]).tolist()
    return dict(zip(found, values, strict=True))


def _placements(param: torch.Tensor) -> tuple:
    tensor = param if param.grad is None else param.grad
    for placement in tensor.placements:
        if placement.is_partial():
            raise ValueError(
                f"a gradient of shape {tuple(tensor.shape)} has placement {placement}: it is to be "
                "summed first"
            )
    return tensor.placements


def _square(grad: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(grad.detach(), dtype=torch.float64).square()


def _added_up(mesh, replicated: tuple[bool, ...], params: list) -> dict:
    """Of parameters that lie alike: one exchange along each dim of the mesh, with which of them
    have a gradient, as what any rank has one for all of them step."""
    local = [None if p.grad is None else p.grad._local_tensor for p in params]
    device = params[0]._local_tensor.device
    none = torch.zeros((), dtype=torch.float64, device=device)
    sums = torch.stack([none if grad is None else _square(grad) for grad in local])
    there = torch.tensor([float(g is not None) for g in local], dtype=torch.float64, device=device)
    both = torch.cat([sums, there])
    for dim, alike in enumerate(replicated):
        group = mesh.get_group(dim)
        with exchanging("norms for percentile_clipping could not be added up", group):
            all_reduce(both, dist.ReduceOp.MAX if alike else dist.ReduceOp.SUM, group)
    sums, there = both.chunk(2)
    present = there.tolist()
    return {p: s for p, s, is_there in zip(params, sums, present, strict=True) if is_there}
