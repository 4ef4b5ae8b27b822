# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The norm of gradients that lie on ranks in any way, and clipping by it.

``clip=ClipByNorm(...)`` of an optimizer does the same inside of its step, in one round and
without a pass of its own over the gradients.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable

import torch
import torch.distributed as dist

from ..tensors.members import ObstacleError, parameter_name
from .beside import beside
from .dtensor import _local, is_dtensor
from .exchanges import exchanging, ranks_along, within
from .layouts import Layout, find
from .shared_memory import all_reduce
from .sharing import Sharing, is_whole, placement_on

_Axes = tuple[tuple[int, ...], ...]
_Member = tuple[torch.Tensor, Layout | None, Sharing | None]


class _Parts:
    """Sums, or maxima, of the rank's parts by the ranks that have the others.

    What is replicated over ranks is counted by each of them alone: sums of different
    groups are made whole on their own, and then added. Over the groups of ranks that have
    other tensors beside, one of those that have a tensor counts it.
    """

    def __init__(self, norm_type: float, device: torch.device):
        self._inf = norm_type == math.inf
        self._device = device
        self._found: dict[_Axes, tuple[list, torch.Tensor]] = {}

    def add(self, grad: torch.Tensor | None, groups: list) -> None:
        """None: this rank has nothing to count, and takes part where others do."""
        wide = torch.zeros(0, dtype=torch.float64, device=self._device)
        if grad is not None:
            wide = grad.detach().to(self._device, torch.float64)
        if self._inf:
            own = wide.abs().amax() if wide.numel() else wide.new_zeros(())
        else:
            own = wide.square().sum()
        key = tuple(sorted(tuple(dist.get_process_group_ranks(g)) for g in groups))
        before = self._found.get(key)
        if before is not None:
            own = torch.maximum(before[1], own) if self._inf else before[1] + own
        self._found[key] = (groups, own)

    def norm(self, everywhere: list) -> torch.Tensor:
        """All of them, over ``everywhere`` too: groups of ranks with other tensors."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for key in sorted(self._found):
            groups, own = self._found[key]
            for group in groups:
                own = self._reduced(own, group)
            total = torch.maximum(total, own) if self._inf else total + own
        for group in everywhere:
            total = self._reduced(total, group)
        return total if self._inf else total.sqrt()

    def _reduced(self, value: torch.Tensor, group) -> torch.Tensor:
        what = "the norm of the gradients could not be added up"
        if not self._inf:
            value = value.clone()
            with exchanging(what, group):
                all_reduce(value, dist.ReduceOp.SUM, group)
            return value
        # A MAX of floats loses a NaN on some backends: it travels as a flag.
        pair = torch.stack([value.nan_to_num(nan=0.0, posinf=math.inf), value.isnan().double()])
        with exchanging(what, group):
            all_reduce(pair, dist.ReduceOp.MAX, group)
        return torch.where(pair[1] > 0, torch.full_like(pair[0], math.nan), pair[0])


def _parameters(given) -> tuple[list[_Member], list, list]:
    """Parameters, those of optimizers with what they say of them and of ranks; the latter of all
    optimizers; and the timeouts that these have."""
    sharings: list[Sharing] = []
    timeouts: list[datetime.timedelta] = []
    if isinstance(given, torch.Tensor | torch.optim.Optimizer):
        given = [given]
    found: dict[int, tuple] = {}
    for item in given:
        if not isinstance(item, torch.optim.Optimizer):
            found.setdefault(id(item), (item, None, None))
            continue
        zero = getattr(item, "_zero", None)
        if zero is not None and zero.local_gradients:
            raise ValueError(
                "an optimizer with gradients='local' takes their mean in its step; give it "
                "clip=ClipByNorm(...)"
            )
        if (timeout := getattr(item, "_timeout", None)) is not None:
            timeouts.append(timeout)
        rules = getattr(item, "_layouts", ())
        sharing = Sharing(item) if rules else None
        if sharing is not None:
            sharings.append(sharing)
        for number, group in enumerate(item.param_groups):
            for place, param in enumerate(group["params"]):
                layout = None
                if rules:
                    of = beside if is_dtensor(param) else find
                    layout = of(rules, group, place, parameter_name(group, number, place))
                found.setdefault(id(param), (param, layout, sharing))
    return list(found.values()), sharings, timeouts


def _everywhere(sharings: list) -> dict:
    """The groups of ranks that have other tensors, by their ranks."""
    found: dict = {}
    for sharing in sharings:
        sharing.agree()
        found.update(sharing.axes)
    return found


def _counts(member: tuple, placed: tuple, everywhere: dict) -> bool:
    """Whether what this rank has of a parameter is counted here, and by no other rank too."""
    param, layout, sharing = member
    for ranks in everywhere:
        # A DTensor's layout says what is beside it, and not how it lies.
        said = placed if layout is None else (layout.mesh, layout.placements)
        if not is_whole(placement_on(*placed, ranks)) or not is_whole(placement_on(*said, ranks)):
            continue
        first = ranks[0] == dist.get_rank()
        if layout is not None and ranks in sharing.axes:
            first = sharing.counts(param, layout, ranks)
        if not first:
            return False
    return True


def clip_grad_norm_(
    parameters: Iterable, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Clips gradients by their norm as of one vector, as :func:`torch.nn.utils.clip_grad_norm_`,
    however they lie on ranks; returns the norm before, a f64 tensor that is the same on all.

    ``parameters`` are tensors, or optimizers of :mod:`stepc.torch`, of which ``layouts`` are
    known too: DTensors of one mesh or several, plain tensors, pipeline stages. On a CUDA device
    all is enqueued on torch's current stream, and the norm lies there. What ranks
    have in common is counted once, by the first of them; where pipeline stages have a tensor that
    the first has not, its layout says ``shared_over``. All ranks of the meshes call it together,
    with the same kinds of tensors.

    Args:
        norm_type: 2 or infinity.
        error_if_nonfinite: RuntimeError for a norm that is Inf or NaN; nothing has changed.

    The shortest ``timeout`` that an optimizer was given is that of each exchange.

    Raises ValueError for another ``norm_type``, and where a gradient is still to be summed,
    by the step of its optimizer too. Raises TensorError for a tensor that no rank counts, and
    CommunicationError where ranks do not come; nothing has changed then.
    """
    norm_type = float(norm_type)
    if norm_type not in (2.0, math.inf):
        raise ValueError(f"norm_type is {norm_type:g}, expected 2 or inf")
    try:
        members, sharings, timeouts = _parameters(parameters)
    except ObstacleError as obstacle:
        raise ValueError(str(obstacle)) from None
    with within(min(timeouts, default=None)), torch.no_grad():
        norm, grads = _norm(members, sharings, norm_type)
        if error_if_nonfinite and not torch.isfinite(norm):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is "
                "non-finite, so it cannot be clipped."
            )
        coefficient = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for grad in grads:
            _scale(grad, coefficient)
    return norm


def _norm(members: list, sharings: list, norm_type: float) -> tuple[torch.Tensor, list]:
    """Of all that ranks have of the members; and this rank's gradients."""
    places = [param.device for param, _, _ in members] + [sharing.device for sharing in sharings]
    device = (*places, torch.device("cpu"))[0]
    parts, grads = _Parts(norm_type, device), []
    placed = [_placed(param, layout) for param, layout, _ in members]
    everywhere = _everywhere(sharings)
    for member, (mesh, placements) in zip(members, placed, strict=True):
        param = member[0]
        groups = [  # besides those over which all is summed
            mesh.get_group(dim)
            for dim, placement in enumerate(placements)
            if not is_whole(placement) and ranks_along(mesh, dim) not in everywhere
        ]
        grad = _local(param.grad) if is_dtensor(param.grad) else param.grad
        parts.add(grad if _counts(member, (mesh, placements), everywhere) else None, groups)
        if grad is not None:
            grads.append(grad)
    return parts.norm([everywhere[ranks] for ranks in sorted(everywhere)]), grads


def _scale(grad: torch.Tensor, coefficient: torch.Tensor) -> None:
    """Multiplies by a f64 number; where that lies on a device nobody waits for it. Narrow types
    are multiplied as f32, as they are by a number."""
    if coefficient.device.type == "cpu":
        grad.mul_(float(coefficient))
    else:
        wide = torch.promote_types(grad.dtype, torch.float32)
        grad.copy_(grad.to(wide) * coefficient.to(grad.device, wide))


def _placed(param: torch.Tensor, layout: Layout | None) -> tuple:
    """Mesh and placements of a parameter's gradient."""
    if layout is not None and not is_dtensor(param):
        if layout.grad == "partial" or layout.grad_divisor is not None:
            raise ValueError(
                f"a gradient of shape {tuple(param.shape)} is to be summed or divided by its "
                "optimizer's step first; give that clip=ClipByNorm(...)"
            )
        return layout.mesh, layout.placements
    grad = param.grad
    if not is_dtensor(param if grad is None else grad):
        return None, ()
    tensor = param if grad is None else grad
    for placement in tensor.placements:
        if placement.is_partial():
            raise ValueError(
                f"a gradient of shape {tuple(tensor.shape)} has placement {placement}: it is to be "
                "summed first"
            )
    return tensor.device_mesh, tensor.placements
