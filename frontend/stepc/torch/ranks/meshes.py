# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Meshes of ``torch.distributed`` as the runtime sees them, and the communicator whose
calls its process groups make.

Axes are told apart by the ranks along them: a mesh and its sub-meshes share theirs, and
two meshes over the same ranks have one axis in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ... import _runtime, errors
from ..._mesh import ALL_GATHER, MAX_I64, Mesh, ReduceCall, Transfer, communicator_of
from ..tensors.device_memory import bytes_at, tensor_at
from . import agreement as _agreement
from . import alike as _alike
from .describe import axis_names
from .exchanges import Ranks, exchanging, gathered, group_among, host_group
from .shared_memory import shared_group

if TYPE_CHECKING:
    from torch.distributed import DeviceMesh

    from ..._shared_memory import SharedGroup


_CPU = torch.device("cpu")
_CROSSING = "could not cross ranks"


class _Axis:
    """The ranks along it from this one, in order, and their process group."""

    def __init__(self, name: str, group: dist.ProcessGroup):
        self.name = name
        self.group = group
        self.ranks: Ranks = tuple(dist.get_process_group_ranks(group))

    @property
    def coordinate(self) -> int:
        return self.ranks.index(dist.get_rank())


class TorchMesh:
    """The grid of ranks that the tensors of one optimizer lie on.

    ``axes_of`` names the axes of each mesh that was given; ``mesh`` is what the runtime
    is told, with the ``communicator``. Groups of several axes are made when a round first
    needs them, by their own ranks alone, and are kept for the process. ``device``: where the
    tensors lie.
    """

    def __init__(
        self,
        meshes: Sequence[DeviceMesh],
        zero: dist.ProcessGroup | None = None,
        device: torch.device = _CPU,
    ):
        self.device = device
        self._axes: list[_Axis] = []
        self._meshes = list(meshes)
        self._zero = zero
        self._grids: list[tuple[tuple[str, ...], torch.Tensor]] = []
        self.axes_of: list[tuple[str, ...]] = [self._add(mesh) for mesh in meshes]
        self.zero_axis = None if zero is None else self._add_zero(zero)
        self.mesh = Mesh(
            tuple(axis.name for axis in self._axes), tuple(len(a.ranks) for a in self._axes)
        )
        on_device = device.type != "cpu"
        self.communicator = communicator_of(
            self._reduce,
            self._enqueue if on_device else None,
            self._start,
            self._enqueue_start if on_device else None,
        )

    def is_of(
        self, meshes: Sequence[DeviceMesh], zero: dist.ProcessGroup | None, device: torch.device
    ) -> bool:
        """Whether one that is made of these would be the same."""
        same = self._meshes == list(meshes) and self._zero is zero
        return same and self.device == device

    def _add(self, mesh: DeviceMesh) -> tuple[str, ...]:
        names = axis_names(mesh)
        own = tuple(self._axis(name, mesh.get_group(d)).name for d, name in enumerate(names))
        self._grids.append((own, mesh.mesh))
        return own

    def _add_zero(self, group: dist.ProcessGroup) -> str:
        """The axis over which states are shared. Its ranks tell each other where they are in
        the meshes, which with it are grids of one dim more: all ranks of the group together."""
        axis = self._axis("zero", group)
        own = [mesh.mesh.tolist() for mesh in self._meshes]
        if any(axis.name not in names for names, _ in self._grids):
            what = "the meshes of the ranks could not be put together"
            found = gathered(own, what, group, self.device)
            for number, (names, _) in enumerate(list(self._grids)):
                if axis.name not in names:
                    grid = torch.stack(
                        [
                            torch.tensor(of_rank[number], dtype=torch.int64, device="cpu")
                            for of_rank in found
                        ]
                    )
                    self._grids.append(((axis.name, *names), grid))
        return axis.name

    def _axis(self, name: str, group: dist.ProcessGroup) -> _Axis:
        """The axis of these ranks, or a new one of that name where none has it yet."""
        axis = _Axis(name, group)
        for known in self._axes:
            if known.ranks == axis.ranks:
                return known
        taken = {known.name for known in self._axes}
        if name in taken:
            axis.name = next(
                n for n in (f"{name}_{i}" for i in itertools.count(2)) if n not in taken
            )
        self._axes.append(axis)
        return axis

    def enter(self, plan: _runtime.Plan) -> None:
        """Tells a plan where this rank is, before anything is bound."""
        at = self.mesh.rank([axis.coordinate for axis in self._axes])
        plan.set_mesh(self.mesh.struct(at), self.communicator)

    def tell(self, items: list[_agreement.Item]) -> None:
        """Notes for all axes what is about to be exchanged; waits for nobody."""
        for axis in self._axes:
            if len(axis.ranks) > 1:
                _agreement.note(items, axis.name, axis.group)

    def agree(self, names: Iterable[str]) -> None:
        """That the ranks along these axes have noted the same; CommunicationError."""
        for axis in self._axes:
            if axis.name in names and len(axis.ranks) > 1:
                _agreement.compare(axis.group)

    def compare(self, facts_along: Callable[[str], _alike.Facts]) -> None:
        """That the ranks along every axis have the same facts, by a call for each."""
        for axis in self._axes:
            if len(axis.ranks) > 1:
                _alike.compare(facts_along(axis.name), axis.group, self.device)

    def failure_of_any(self, words: str, what: str) -> str:
        """The words of a rank that has some, "" where none has: all ranks of the mesh together,
        along one axis after the other."""
        axes = [axis for axis in self._axes if len(axis.ranks) > 1]
        failed = torch.tensor([int(bool(words))], dtype=torch.int64, device="cpu")
        for axis in axes:
            group = self.host(axis.group)
            with exchanging(what, group):
                dist.all_reduce(failed, dist.ReduceOp.MAX, group)
        for axis in axes if failed else ():
            words = next(filter(None, gathered(words, what, axis.group, self.device)), "")
        return words

    def least(self, value: int, what: str) -> int:
        """Of the values of all ranks of the mesh, by all of them together."""
        line = torch.tensor([value], dtype=torch.int64, device="cpu")
        for axis in self._axes:
            group = self.host(axis.group)
            with exchanging(what, group):
                dist.all_reduce(line, dist.ReduceOp.MIN, group)
        return int(line)

    def named(self, ranks: Iterable[Ranks]) -> set[str]:
        """The axes along which these ranks lie."""
        wanted = set(ranks)
        return {axis.name for axis in self._axes if axis.ranks in wanted}

    @property
    def shared_axes(self) -> set[str]:
        """Those along which there are several ranks."""
        return {axis.name for axis in self._axes if len(axis.ranks) > 1}

    def names_of(self, bits: int) -> set[str]:
        return {axis.name for number, axis in enumerate(self._axes) if bits >> number & 1}

    # --- Rounds ---------------------------------------------------------------

    def _reduce(self, calls: Sequence[ReduceCall]) -> None:
        """All calls of a round are under way together, but for those through shared memory, each
        of which is waited for: behind the start of all others, and by groups in the order of their
        axes, as ranks that began with different ones would wait for each other."""
        self.agree(set().union(*(self.names_of(call.axes) for call in calls)))
        of_group: dict[dist.ProcessGroup, list[ReduceCall]] = {}
        for call in sorted(calls, key=lambda call: call.axes):
            of_group.setdefault(self._group(call.axes), []).append(call)
        with exchanging("a sum over ranks could not be made", *of_group):
            works, waited = [], []
            for group, own in of_group.items():
                shared = self._shared(group)
                if shared is not None:
                    waited.append((shared, own))
                else:
                    works += [self._all_reduce(call, group) for call in own]
            for shared, own in waited:
                shared.reduce(own)
            for work in works:
                work.wait()

    def _all_reduce(self, call: ReduceCall, group: dist.ProcessGroup) -> dist.Work:
        highest = call.reduction == MAX_I64
        kind = torch.int64 if highest else torch.float64
        tensor = tensor_at(call.data, call.count, kind, self.device)
        operation = dist.ReduceOp.MAX if highest else dist.ReduceOp.SUM
        return dist.all_reduce(tensor, operation, group=group, async_op=True)

    def _shared(self, group: dist.ProcessGroup) -> SharedGroup | None:
        """The memory that the group's ranks share, where it is that of the tensors."""
        return shared_group(group) if self.device.type == "cpu" else None

    def _start(self, transfer: Transfer) -> Callable[[], None]:
        """Begins what a plan transfers; returns what waits for it."""
        group = self._group(transfer.axes)
        with exchanging(_CROSSING, group):
            shared = self._shared(group)
            wait = self._start_by_torch(transfer, group) if shared is None else None
            wait = wait or shared.start(transfer)

        def finish() -> None:
            with exchanging(_CROSSING, group):
                self._shared(group)  # by the timeout of now
                wait()

        return finish

    def _start_by_torch(self, transfer: Transfer, group: dist.ProcessGroup) -> Callable[[], None]:
        size = dist.get_world_size(group)
        received = transfer.receiveBytes[:size]
        whole = bytes_at(transfer.receive, sum(received), self.device)
        if transfer.kind == ALL_GATHER:
            works = self._gather(transfer.send, whole, received, group)
        else:
            sent = transfer.sendBytes[:size]
            own = bytes_at(transfer.send, sum(sent), self.device)
            works = [dist.all_to_all_single(whole, own, received, sent, group=group, async_op=True)]

        def wait() -> None:
            for work in works:
                work.wait()

        return wait

    def _gather(self, send: int | None, whole: torch.Tensor, received: list[int], group) -> list:
        """Puts the ranks' pieces together. From each rank straight to all others, all at once: a
        ring, as Gloo's all_gather, takes three times as long, and NCCL's takes pieces that
        differ only as copies."""
        rank = dist.get_rank(group)
        pieces = whole.split(received)
        if received[rank] and send != pieces[rank].data_ptr():
            pieces[rank].copy_(bytes_at(send, received[rank], self.device))
        if self.device.type != "cpu" and len(set(received)) == 1:
            own = bytes_at(send, received[rank], self.device)
            return [dist.all_gather_single(whole, own, group=group, async_op=True)]
        return [
            dist.broadcast(piece, dist.get_global_rank(group, n), group=group, async_op=True)
            for n, piece in enumerate(pieces)
            if len(piece)
        ]

    def _enqueue(self, calls: Sequence[ReduceCall], _stream: int) -> None:
        """The same on a device, where the current stream waits and not the host: that is the
        plan's while a step is made."""
        with torch.no_grad():
            self._reduce(calls)

    def _enqueue_start(self, transfer: Transfer, _stream: int) -> Callable[[int], None]:
        """The same on a device: it begins behind what is on the current stream, which its end
        makes wait, and not the host."""
        with torch.no_grad():
            finish = self._start(transfer)
        return lambda _stream: finish()

    def group_of(self, names: Sequence[str]) -> dist.ProcessGroup:
        """The process group of the axes of these names."""
        return self._group(sum(1 << n for n, axis in enumerate(self._axes) if axis.name in names))

    def _group(self, bits: int) -> dist.ProcessGroup:
        """The process group of a set of axes."""
        axes = [axis for number, axis in enumerate(self._axes) if bits >> number & 1]
        axes = [axis for axis in axes if len(axis.ranks) > 1] or axes
        if len(axes) == 1:
            return axes[0].group
        return group_among(self._ranks({axis.name for axis in axes}), axes[0].group)

    def host(self, group: dist.ProcessGroup) -> dist.ProcessGroup:
        """The group for what the hosts of its ranks tell each other."""
        return host_group(group, self.device)

    def _ranks(self, names: set[str]) -> Ranks:
        """The ranks that differ from this one in these axes alone."""
        for own, grid in self._grids:
            if not names <= set(own):
                continue
            at = (grid == dist.get_rank()).nonzero()[0]
            place = tuple(
                slice(None) if name in names else int(at[d]) for d, name in enumerate(own)
            )
            return tuple(sorted(grid[place].flatten().tolist()))
        raise errors.CommunicationError(
            f"no device mesh of the parameters has the axes {', '.join(sorted(names))} together, "
            "over which the definition reduces",
            "STEPC_COMMUNICATION_ERROR",
        )
