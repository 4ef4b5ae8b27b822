# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plan: a model under a definition, on a layout of ranks."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, field

from .._mesh import UNDER_WAY
from . import timeline, traffic, usage
from .account import Accountant, RankAccount
from .failure import PlanError
from .kept import Kept
from .layouts import Layout, Part, parse
from .machines import Machine
from .models import BYTES, Model, Tensor
from .owners import Owners
from .package import Definition, Package, Source
from .views import with_views

GRADIENTS = ("local", "reduced")


@dataclass(frozen=True)
class Request:
    """What is asked for beside definition, model and machine; defaults are the command's."""

    layout: str = "zero1"
    sizes: dict[str, int] = field(default_factory=dict)  # of axes
    rules: tuple[tuple[str, int | None], ...] = ()  # of tp
    values: dict[str, float] = field(default_factory=dict)  # options and hyper-parameters
    grad: str | None = None  # storage of gradients, where it is not the parameter's
    state: str | None = None  # storage of states: T, or NAME:T,...; q8: codes
    master: str | None = None  # what is kept beside 16-bit parameters: f32, or remainder
    gradients: str = "local"
    workers: int = 1  # threads of a rank
    groups: int = 1  # of parameters
    views: tuple[tuple[str, str], ...] = ()  # regular expressions of names, and how they are seen


class Plan:
    """What :func:`make` found. ``account``: of ``fullest``, the rank that has the most."""

    def __init__(self, model: Model, machine: Machine, layout: Layout, package: Package,
                 request: Request, owners: Owners):  # fmt: skip
        self.model, self.machine, self.layout, self.package = model, machine, layout, package
        self.request, self.owners = request, owners
        self._accountant = Accountant(package, layout, request.workers, request.groups)
        self._of_all_ranks = self._flat_memory() if layout.is_flat else {}
        self.traffic = traffic.beside_step(model, layout, request.gradients)
        buckets = sum(row.bytes for row in self.traffic if row.what == traffic.OF_DDP)
        if buckets:  # DDP's copy of all gradients, but with gradient_as_bucket_view
            self._of_all_ranks["buckets of gradients"] = buckets
        # Of dims rank 0 has the largest part.
        differ = layout.is_flat or owners.list
        self.fullest, self.account = max(
            ((rank, self.rank(rank)) for rank in range(layout.ranks if differ else 1)),
            key=lambda one: self.memory_of(one[1])["total"],
        )
        self.traffic += traffic.presence(owners.cut, layout, self.account.calls)
        self.traffic += traffic.of_owners(owners, layout, package, request.gradients)

    def parts(self, rank: int) -> Counter[Part]:
        """What a rank steps, and how many tensors have each alike."""
        return self.layout.parts(self.owners.cut, rank) + self.owners.parts(rank)

    def rank(self, rank: int) -> RankAccount:
        found = self._accountant.rank(self.parts(rank))
        if self.layout.is_flat:
            found.landing = self.owners.landing(rank)
        else:
            self._add_shards(rank, found)
        return found

    def _add_shards(self, rank: int, account: RankAccount) -> None:
        """What a rank keeps of tensors that owners step, which have the whole beside it. Of a
        state the share of its elements: some are whole on each rank."""
        at = self.layout.coordinates(rank)
        for one in self.owners.list:
            tensor, whole = one.tensor, self.package.part(one.part)
            elements = math.prod(self.layout.local_shape(tensor, at))
            account.param += elements * BYTES[tensor.dtype]
            account.grad += elements * BYTES[self.package.grad_of(tensor.dtype)]
            for state in whole.states:
                account.states[state.name] += state.bytes * elements // max(tensor.elements, 1)

    def uses(self) -> list[usage.Use]:
        """The variants that the rank with the most runs."""
        return usage.by_variant(self.package, self.parts(self.fullest))

    # --- Work -------------------------------------------------------------------

    @functools.cached_property
    def flops(self) -> list[float]:
        """Of the products and decompositions of a step, of each rank. What is done in some steps
        counts with its share, by the defaults of hyper-parameters."""
        alike = sum(
            self.package.part(part).flops * count
            for part, count in self.layout.parts(self.owners.cut, 0).items()
        )
        return [
            alike + sum(one.flops for one in self.owners.of(rank))
            for rank in range(self.layout.ranks if self.owners.list else 1)
        ]

    @property
    def balance(self) -> float:
        """The most that a rank has over the mean, 1 at best."""
        mean = sum(self.flops) / len(self.flops)
        return max(self.flops) / mean if mean else 1.0

    # --- Memory ---------------------------------------------------------------

    def memory_of(self, account: RankAccount) -> dict[str, int | dict]:
        """Bytes by kind; ``total`` is their sum, without what torch gathers for a layer."""
        found: dict[str, int | dict] = {
            "parameters": account.param,
            "gradients": account.grad,
            "states": dict(account.states),
            "kept between steps": account.kept,
            "f32 of codes between rounds": account.held,
            "workspace": account.workspace,
            "exchange buffers": account.exchange,
        }
        found |= self._of_all_ranks
        if account.landing and "means of gradients" in found:
            found["means of gradients"] += account.landing
        found["total"] = sum(sum(v.values()) if isinstance(v, dict) else v for v in found.values())
        return found

    def _flat_memory(self) -> dict[str, int]:
        """Every rank has whole parameters, and with zero1 whole gradients; where these are its
        own, f32 means of its part. Of buckets that cross at a time there is memory for what is sent
        and received, and for what is gathered, but of one tensor, which is gathered where it is."""
        lines, ranks = self.layout.lines, self.layout.ranks
        under_way = min(UNDER_WAY, len(lines))
        lengths = [max(line.length, line.most) for line in lines]
        pairs = list(zip(lengths, lines, strict=True))
        wholes = [length * ranks * BYTES[line.dtype] for length, line in pairs]
        joined = [n for n, line in zip(wholes, lines, strict=True) if len(line.tensors) > 1]
        # Of what owners step a bucket is sent, and no more of it received.
        owned = [sum(one.tensor.bytes for one in own) for own in self.owners.buckets()]
        joined += [n for n, own in zip(owned, self.owners.buckets(), strict=True) if len(own) > 1]
        under_way = min(UNDER_WAY, len(lines) + len(owned))
        wholes += owned
        found = {"parameters": sum(t.bytes for t in self.model.tensors)}
        if self.layout.kind == "zero1":
            found["gradients"] = sum(
                t.elements * BYTES[self.package.grad_of(t.dtype)] for t in self.model.tensors
            )
        if self.request.gradients == "local" or self.layout.kind == "zero2":
            sums = sum(length * max(BYTES[line.dtype], BYTES["f32"]) for length, line in pairs)
            found["means of gradients"] = sums
            found["buckets of gradients"] = 2 * under_way * max(wholes)
        gathered = min(under_way, len(joined)) * max(joined, default=0)
        return found | {"gathered parameters": gathered}

    @property
    def memory(self) -> dict[str, int | dict]:
        return self.memory_of(self.account)

    @property
    def largest_unit(self) -> int:
        """Bytes that torch gathers at a time, the root and one block; 0 where it gathers none."""
        return traffic.largest_unit(self.model, self.layout) if self.layout.kind == "fsdp2" else 0

    # --- Times ----------------------------------------------------------------

    def times(self) -> dict[str, float]:
        """Seconds, estimated: bytes over bandwidth and messages times latency, nothing
        overlapped. Empty where the machine's figures are not known."""
        if not self.machine.is_timed:
            return {}
        found = {"step, memory traffic": 0.0, "exchanges of the step": 0.0}
        for event in self.events():
            name = event.what
            if event.when == timeline.STEP:
                is_kernel = event.lane == timeline.MEMORY
                name = "step, memory traffic" if is_kernel else "exchanges of the step"
            found[name] = found.get(name, 0.0) + event.seconds
        return found

    def events(self) -> list[timeline.Event]:
        """Of the rank that has the most, in the order of time."""
        return timeline.events(self.layout, self.machine, self.account, self.traffic)


def make(source: Source, model: Model, machine: Machine, request: Request) -> Plan:
    """Chooses the variants and counts; compiles where the source is a definition."""
    if request.gradients not in GRADIENTS:
        raise PlanError(f"gradients is '{request.gradients}', known: {', '.join(GRADIENTS)}")
    for name in ("workers", "groups"):
        if getattr(request, name) < 1:
            raise PlanError(f"{name} is {getattr(request, name)}, the least is 1")
    kept, definition = Kept.parse(request.state, request.master), Definition(source, request.values)

    model = with_views(model, request.views, definition)

    def layout_of(own: Model) -> Layout:
        def has_codes(tensor: Tensor) -> bool:
            return definition.has_codes(tensor.shape, tensor.dtype, kept)

        return parse(request.layout, own, machine.ranks, request.sizes, machine.ranks_per_node,
                     request.rules, has_codes)  # fmt: skip

    layout = layout_of(model)
    if request.views and layout.ranks > 1 and (layout.kind == "fsdp2" or "tp" in layout.axes):
        raise PlanError(
            f"layout is '{request.layout}', whose ranks cut parameters as they are, and views are "
            "given, of which a plan has the parts: expected ddp, zero1 or zero2"
        )
    owners = Owners(model, layout, definition)
    if owners.list and layout.is_flat:  # lines of the others
        layout = layout_of(owners.cut)
    dtypes = {tensor.dtype for tensor in model.tensors}
    grads = dict.fromkeys(dtypes, request.grad) if request.grad else {}
    if layout.kind == "zero2":
        if request.gradients != "local":
            raise PlanError("layout is 'zero2', which reduces local gradients itself")
        grads = {dtype: "f64" if dtype == "f64" else "f32" for dtype in dtypes}
    kinds = _kinds(owners.cut, layout) | {one.part for one in owners.list}
    package = Package(source, kinds, request.values, grads, kept)
    return Plan(model, machine, layout, package, request, owners)


def _kinds(model: Model, layout: Layout) -> set[Part]:
    """A part of each kind: their layouts say which variants are needed."""
    if layout.is_flat:
        return {Part(t.shape, t.dtype, flat=layout.data_axes) for t in model.tensors}
    at = layout.coordinates(0)
    return {
        Part(t.shape, t.dtype, layout.dims(t), layout.local_shape(t, at)) for t in model.tensors
    }
