# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Process groups that are made here, and those of the host.

What ranks tell each other for their hosts to read (which gradients there are, sizes,
objects) crosses between hosts also where parameters lie on devices: the collectives of a
device would make the host wait for all that is on its stream. Groups that the user has made
for devices alone, as NCCL's, get a Gloo group of the same ranks beside them.
"""

from __future__ import annotations

import contextlib
import datetime
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist

from .. import errors

Ranks = tuple[int, ...]

_DEFAULT = datetime.timedelta(minutes=30)  # torch's own
_made: dict[tuple[str, Ranks], dist.ProcessGroup] = {}


@contextlib.contextmanager
def _named_by_ranks(prefix: str) -> Iterator[None]:
    """Groups that are made within have a name of their ranks alone. torch's own is of how many
    groups this process has, too: where ranks have other numbers of them, as stages of a pipeline
    may, they would wait for each other under two names."""
    module = dist.distributed_c10d
    name = getattr(module, "_hash_ranks_to_str", None)
    if name is None:
        warnings.warn(
            "stepc: this torch names process groups in its own way: ranks that have made different "
            "numbers of them may wait for each other",
            RuntimeWarning,
            stacklevel=2,
        )
        yield
        return
    module._hash_ranks_to_str = lambda ranks: f"{prefix} {'-'.join(map(str, ranks))}"
    try:
        yield
    finally:
        module._hash_ranks_to_str = name


def _group_of(prefix: str, ranks: Ranks, **arguments) -> dist.ProcessGroup:
    """Made by its ranks together, and kept for the process."""
    # torch.distributed may have been started anew, and what was made is gone.
    if _made.get((prefix, ranks)) not in dist.distributed_c10d._world.pg_map:
        with _named_by_ranks(prefix):
            group = dist.new_group(list(ranks), use_local_synchronization=True, **arguments)
        _made[prefix, ranks] = group
    return _made[prefix, ranks]


def group_among(ranks: Ranks) -> dist.ProcessGroup:
    """The process group of these ranks, made by all of them together where it is not there."""
    return _group_of("stepc", ranks)


def timeout_of(group: dist.ProcessGroup) -> datetime.timedelta:
    for kind in ("cpu", "cuda"):
        with contextlib.suppress(AttributeError, RuntimeError):
            return group._get_backend(torch.device(kind)).options._timeout
    return _DEFAULT


def speaks_on_host(group: dist.ProcessGroup) -> bool:
    """Whether the group has a backend for tensors in the processor's memory."""
    try:
        group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return False
    return True


def host_group(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """The group for what the hosts of its ranks tell each other, where parameters lie on the
    device: itself, or one of Gloo, which all ranks make together at the first call."""
    if device.type == "cpu" or speaks_on_host(group):
        return group
    ranks = tuple(dist.get_process_group_ranks(group))
    return _group_of("stepc host", ranks, backend="gloo", timeout=timeout_of(group))


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """Says which collective it was that failed, for whatever reason the backend has."""
    try:
        yield
    except errors.StepcError:
        raise
    except (RuntimeError, ValueError) as error:
        raise errors.CommunicationError(f"{what}: {error}", "STEPC_COMMUNICATION_ERROR") from error


def gather_objects(value, group: dist.ProcessGroup, device: torch.device) -> list:
    """What every rank of the group has, in their order: all ranks together. ``device``: where
    their parameters lie."""
    group = host_group(group, device)
    every: list = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, value, group=group)
    return every
