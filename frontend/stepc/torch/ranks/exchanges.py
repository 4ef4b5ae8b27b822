# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks exchange by ``torch.distributed``: over which process groups, how long that may take,
and what is said of an exchange that has failed.

What ranks tell each other for their hosts to read (which gradients there are, sizes,
objects) crosses between hosts also where parameters lie on devices: the collectives of a
device would make the host wait for all that is on its stream. Groups that the user has made
for devices alone, as NCCL's, get a Gloo group of the same ranks beside them.

``timeout=`` of an optimizer is for the time of a call the timeout of the process groups that
it goes over, which the backend keeps also for calls that are still under way. When one has run
out of time Gloo closes its connections: what other ranks wait for fails too, and the group is of
no use any more, so that nothing of an old step can get into a new one. It is that of what the
hosts wait for: backends of devices alone, whose calls are work on a stream, keep their own.

Without it a group has the timeout that it was made with. torch makes those of a mesh with its own
30 minutes, whatever ``init_process_group`` was told: where a group has no other time than that,
and the default group a shorter one, it is the default group's.

A process that ended right after an exchange over Gloo would abort now and then ("terminate called
without an active exception"): a thread of torch still frees a tensor, for which it needs the
interpreter (pytorch issue 190489). So it waits for a moment before the interpreter goes.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import threading
import time
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist

from ... import errors

Ranks = tuple[int, ...]

_DEFAULT = datetime.timedelta(minutes=30)  # torch's own
_GRACE = 1.0  # seconds in which the others notice that an exchange has failed
_LINGER = 0.2  # seconds in which a thread of Gloo lets go of what it has exchanged


class _Current(threading.local):
    timeout: datetime.timedelta | None = None


_current = _Current()
_failures: dict[tuple, int] = {}  # of this process, by group
_made: dict[tuple[str, Ranks], dist.ProcessGroup] = {}


def ranks_along(mesh, dim: int) -> Ranks:
    """Those that differ from this one in the dim of a device mesh alone: what tells an axis from
    others."""
    return tuple(dist.get_process_group_ranks(mesh.get_group(dim)))


def check_timeout(timeout) -> datetime.timedelta | None:
    """The argument of an optimizer; TypeError and ValueError."""
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"timeout is {timeout!r}, expected a datetime.timedelta")
    if timeout is not None and timeout <= datetime.timedelta(0):
        raise ValueError(f"timeout is {timeout}, expected a positive time")
    return timeout


@contextlib.contextmanager
def within(timeout: datetime.timedelta | None) -> Iterator[None]:
    """Exchanges of this thread have so long; None: as their process groups say."""
    before, _current.timeout = _current.timeout, timeout
    try:
        yield
    finally:
        _current.timeout = before


def timeout_of(group) -> datetime.timedelta:
    """How long an exchange over the group may take now."""
    return _current.timeout or _inherited(group) or own_timeout(group)


def _inherited(group) -> datetime.timedelta | None:
    """The default group's, where nobody gave the group one."""
    if own_timeout(group) != _DEFAULT or not dist.is_initialized():
        return None
    default = own_timeout(dist.distributed_c10d._get_default_group())
    return default if default < _DEFAULT else None


def own_timeout(group) -> datetime.timedelta:
    """As the group was made."""
    try:
        return _backends(group)[0].options._timeout
    except (AttributeError, RuntimeError, IndexError):
        return _DEFAULT


def _backends(group) -> list:
    """One for each kind of device, of which several may have the same."""
    return [group._get_backend(device) for device in group._device_types]


def _host_backends(group) -> list:
    """Those of them that hosts wait for."""
    return [group._get_backend(d) for d in group._device_types if d.type == "cpu"]


def linger_at_exit() -> None:
    """Where ranks exchange anything, also by torch's own DistributedDataParallel."""
    if dist.is_available() and dist.is_initialized():
        _register()


@functools.cache
def _register() -> None:
    # Handlers of exit run while other threads can still have the interpreter.
    atexit.register(time.sleep, _LINGER)


@contextlib.contextmanager
def exchanging(what: str, *groups) -> Iterator[None]:
    """Around calls over process groups: their timeout is the optimizer's, where it has one.

    CommunicationError where one fails, for whatever reason the backend has: ``what`` could
    not be done, and the ranks that do not say that it has failed for them too.
    """
    groups = tuple(dict.fromkeys(groups))
    _register()
    try:
        with contextlib.ExitStack() as stack:
            for group in groups:
                stack.enter_context(_limited(group))
            yield
    except errors.StepcError:
        raise
    except (RuntimeError, ValueError) as error:
        found = sorted(set().union(*map(_absent, groups)))
        absent = f" (no word of rank {', '.join(map(str, found))})" if found else ""
        raise errors.CommunicationError(
            f"{what}{absent}: {error}", "STEPC_COMMUNICATION_ERROR"
        ) from error


@contextlib.contextmanager
def _limited(group) -> Iterator[None]:
    """Has calls that are made within end by the current timeout."""
    timeout = _current.timeout or _inherited(group)
    if timeout is None:
        yield
        return
    try:
        before = [(each, each.options._timeout) for each in _host_backends(group)]
        for each, _ in before:
            each._set_default_timeout(timeout)
    except (AttributeError, RuntimeError):
        raise errors.StepcError(
            f"timeout is given, and backend '{dist.get_backend(group)}' of a process group has "
            "none that could be set"
        ) from None
    try:
        yield
    finally:
        for each, own in before:
            each._set_default_timeout(own)


def _absent(group) -> list[int]:
    """The ranks of the group that do not say within a second that an exchange has failed; none
    where the store, which one of them may keep, does not answer."""
    store = dist.distributed_c10d._get_default_store()
    ranks = tuple(dist.get_process_group_ranks(group))
    key = group.group_name, ranks
    number = _failures[key] = _failures.get(key, 0) + 1
    place = f"stepc/failed/{group.group_name}/{'-'.join(map(str, ranks))}/{number}"
    found: list[int] = []

    def ask() -> None:
        with contextlib.suppress(RuntimeError):
            store.set(f"{place}/{dist.get_rank()}", "")
            missing, end = [r for r in ranks if r != dist.get_rank()], time.monotonic() + _GRACE
            while missing and time.monotonic() < end:
                missing = [rank for rank in missing if not store.check([f"{place}/{rank}"])]
                time.sleep(0.01)
            found.extend(missing)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(2 * _GRACE)
    return list(found)


def gathered(value, what: str, group: dist.ProcessGroup, device: torch.device) -> list:
    """What each rank of the group has, in their order: all of them together. ``device``: where
    their parameters lie. CommunicationError: ``what`` could not be done."""
    group = host_group(group, device)
    every: list = [None] * dist.get_world_size(group)
    with exchanging(what, group):
        dist.all_gather_object(every, value, group=group)
    return every


# --- Process groups that are made here ------------------------------------------


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


def _group_of(prefix: str, ranks: Ranks, like: dist.ProcessGroup, **more) -> dist.ProcessGroup:
    """Made by its ranks together with the timeout of another one, and kept for the process."""
    # torch.distributed may have been started anew, and what was made is gone.
    if _made.get((prefix, ranks)) not in dist.distributed_c10d._world.pg_map:
        words = ", ".join(map(str, ranks))
        with (
            exchanging(f"a process group of ranks {words} could not be made"),
            _named_by_ranks(prefix),
        ):
            group = dist.new_group(
                list(ranks), timeout=timeout_of(like), use_local_synchronization=True, **more
            )
        for backend in _backends(group) if _current.timeout is not None else ():
            backend._set_default_timeout(own_timeout(like))
        _made[prefix, ranks] = group
    return _made[prefix, ranks]


def group_among(ranks: Ranks, like: dist.ProcessGroup) -> dist.ProcessGroup:
    """The process group of these ranks, made by all of them together where it is not there, with
    the timeout of another one."""
    return _group_of("stepc", ranks, like)


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
    return _group_of("stepc host", ranks, group, backend="gloo")
