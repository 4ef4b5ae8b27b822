# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule, variant and states a tensor gets: asked of the runtime library, which decides by
the same code when tensors are bound."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import (
    byref,
    c_char,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    string_at,
)
from typing import NamedTuple, TypeVar

from . import _codes as codes
from . import _library
from ._structures import (
    DATA_TYPES,
    Description,
    DLDataType,
    Option,
    RuleDescription,
    StateDescription,
    TensorDescription,
    TensorQuery,
)

T = TypeVar("T")

SCALE = ".scale"  # behind the name of a state of codes
BLOCK = 64  # elements that have one


def count_blocks(index: int, row: int, size: int = BLOCK) -> int:
    """How many blocks of ``size`` begin before element ``index`` of rows of ``row`` elements:
    before element 164 of rows of 100 those at 0, 64, 100."""
    return index // row * -(-row // size) + -(-(index % row) // size)


def shares_cut_blocks(extent: int, sizes: Iterable[int], inner: int) -> bool:
    """Whether equal shares of a dim, over axes of these sizes in turn, cut blocks of rows of which
    an index has ``inner`` elements: as ranks reckon it without asking (getCuttingAxes of the
    runtime)."""
    share, cuts = extent, False
    for size in sizes:
        if size > 1:
            cuts |= share % size != 0 and share != extent  # parts of an uneven part begin anywhere
            share = -(-share // size)
            cuts |= share * inner % BLOCK != 0
    return cuts


def is_scale(name: str) -> bool:
    """Whether a state of the name is the scales of another."""
    return name.endswith(SCALE)


_TYPES = {"": (0, 0, 0), **{name: (t.code, t.bits, t.lanes) for name, t in DATA_TYPES.items()}}
_STORAGES = {(t.code, t.bits): name for name, t in DATA_TYPES.items()}


class Query(NamedTuple):
    """A tensor to ask about. ``options``: the values of all, in the order of the interface;
    ``shape``: of the whole tensor; ``part``: extents of what the rank has, None: all;
    ``sharded``: bit k says that ranks share dim k; ``range``: the elements of the rank where it
    has a range of them; ``first``: the index in the whole of its first element, where it has a
    part of dims, on which scales of codes depend. ``param`` and ``grad``: storage types, "" where
    no variant is asked for; ``master``: the state that keeps the parameter's f32, None: none;
    ``rounds``: whether it is rounded by random bits; ``coded``: the states that are kept as codes
    where that saves memory, each with how."""

    options: tuple[int, ...]
    shape: tuple[int, ...]
    part: tuple[int, ...] | None = None
    sharded: int = 0
    range: tuple[int, int] | None = None
    param: str = ""
    grad: str = ""
    master: str | None = None
    rounds: bool = False
    coded: tuple[tuple[str, codes.Codes], ...] = ()
    first: int = 0


class Rule(NamedTuple):
    """How tensors of one kind of shape are updated. ``dims``: ``("*",)``, names, or names after
    ``"...b"``; ``unshardable``: those that ranks cannot share, and ``needs_matrices``: nor a range
    of the elements, for which the definition has its reason at ``line`` and ``column``."""

    name: str
    dims: tuple[str, ...]
    unshardable: tuple[str, ...]
    needs_matrices: bool
    line: int
    column: int


class State(NamedTuple):
    """A state beside a tensor, or the scales of one of codes, which stand behind it under its
    name with :data:`SCALE`. ``shape``: of the whole, ``part``: beside the rank's part;
    ``of_param``: for each dim the parameter's that it is, or None; ``is_full``: it has all of
    them. Without a variant ``storage`` is "" and ``bytes``, of the part, 0; ``exists``: whether
    the group's options are for it; ``format``: of codes theirs, of whose tensor all this is;
    ``floats`` is then what they stand for; ``inner``: of scales how many elements of a row one
    index of its first dim has."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    part: tuple[int, ...]
    of_param: tuple[int | None, ...]
    is_full: bool
    init: float
    storage: str
    bytes: int
    exists: bool
    format: str = ""
    floats: State | None = None
    inner: int = 1


class Tensor(NamedTuple):
    """What a tensor gets. ``rule``: None where none takes it; ``variant``: its index in the
    manifest, None where there is none or none was asked for; ``states``: the variant's, in the
    order of a binding, else the rule's; ``cut_dim``: the first that ranks share and the rule
    cannot. ``refusal``: why something is missing, "" where nothing is, and ``status``, as the
    runtime's own. Of the rank's part ``elements``, and with a variant the bytes ``kept`` between
    steps and of the ``workspace``, ``entries`` of its buffers, and whether all threads work on
    the tensor together; of a step ``flops``, those of products and decompositions, and ``cost``,
    by which owners are chosen (``stepc/describe.h``)."""

    rule: Rule | None
    variant: int | None
    states: tuple[State, ...]
    cut_dim: str | None
    refusal: str
    status: str
    elements: int
    kept: int
    workspace: int
    entries: tuple[int, ...]
    is_shared: bool
    flops: float
    cost: float


# Of a field of ``stepc/describe.h``, for :mod:`struct`, which reads thousands of structures in half
# the time that ctypes takes for their fields.
_CODES = {
    c_size_t: "N",
    c_int32: "i",
    c_int64: "q",
    c_uint64: "Q",
    c_double: "d",
    DLDataType: "BBH",
}


def _layout_of(structure: type[ctypes.Structure]) -> struct.Struct:
    found = struct.Struct("@" + "".join(_CODES.get(kind, "P") for _, kind in structure._fields_))
    assert found.size == ctypes.sizeof(structure), structure
    return found


_QUERY, _RULE = _layout_of(TensorQuery), _layout_of(RuleDescription)
_STATE, _TENSOR = _layout_of(StateDescription), _layout_of(TensorDescription)


_EVERY = tuple(range(64))  # dims, of which no tensor has more
_WIDTHS = {code: struct.calcsize(f"@{code}") for code in "qiP"}


def _read(layout: struct.Struct, address: int) -> tuple:
    return layout.unpack(string_at(address, layout.size))


def _numbers(address: int | None, size: int, code: str = "q") -> tuple[int, ...]:
    if not size:
        return ()
    return struct.unpack(f"@{size}{code}", string_at(address, size * _WIDTHS[code]))


class Handle:
    """An interface, or a manifest, that the library has read. PackageError where it cannot."""

    def __init__(self, text: bytes):
        self._lib, self._handle = _library.load_library(), c_void_p()
        # By address: they live as long as the interface.
        self._rules: dict[int, Rule] = {}
        self._texts: dict[int, str] = {}
        self._lists: dict[int | None, tuple[str, ...]] = {None: ()}
        status = self._lib.stepcInterfaceLoad(text, len(text), byref(self._handle))
        _library.check(self._lib, status)

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.stepcInterfaceDestroy(self._handle)
            self._handle = None

    def resolve(self, options: dict[str, int], hypers: Sequence[float], size: int) -> list[int]:
        """The values of all ``size`` options, in their order."""
        given = (Option * max(len(options), 1))()
        for own, (name, value) in zip(given, options.items(), strict=False):
            own.name, own.value = name.encode(), value
        numbers = (c_double * max(len(hypers), 1))(*hypers)
        values = (c_int64 * max(size, 1))()
        status = self._lib.stepcInterfaceResolve(
            self._handle, given, len(options), numbers, len(hypers), values
        )
        _library.check(self._lib, status)
        return values[:size]

    def describe(self, queries: Sequence[Query]) -> list[Tensor]:
        """One answer for each, by one call; TensorError for a tensor that cannot be."""
        return self._ask(queries, self._tensor)

    def rules(self, queries: Sequence[Query]) -> list[Rule | None]:
        """The rules alone, which take less time to read."""
        return self._ask(queries, self._rule_of)

    def _ask(self, queries: Sequence[Query], read: Callable[[int, Query], T]) -> list[T]:
        given, out = _Queries(queries), c_void_p()
        status = self._lib.stepcInterfaceDescribe(
            self._handle, given.array, len(queries), byref(out)
        )
        _library.check(self._lib, status)
        try:
            found = Description.from_address(out.value)
            pointers = _numbers(found.tensors, found.numTensors, "P")
            return [read(at, query) for at, query in zip(pointers, queries, strict=True)]
        finally:
            self._lib.stepcDescriptionDestroy(out)

    def _tensor(self, address: int, query: Query) -> Tensor:
        (_, rule, variant, states, num_states, cut, refusal, status, is_shared, elements, kept,
         workspace, entries, num_entries, flops, cost) = _read(_TENSOR, address)  # fmt: skip
        return Tensor(
            self._rule(rule) if rule else None,
            None if variant < 0 else variant,
            tuple(self._states(_numbers(states, num_states, "P"), query)),
            self._text(cut) if cut else None,
            string_at(refusal).decode() if refusal else "",
            self._lib.stepcStatusString(status).decode() if refusal else "",
            elements,
            kept,
            workspace,
            _numbers(entries, num_entries),
            bool(is_shared),
            flops,
            cost,
        )

    def _rule_of(self, address: int, query: Query) -> Rule | None:
        rule = _read(_TENSOR, address)[1]
        return self._rule(rule) if rule else None

    def _rule(self, address: int) -> Rule:
        if address not in self._rules:
            _, name, dims, num_dims, fixed, num_fixed, matrices, _, *place = _read(_RULE, address)
            texts = self._dims(dims, num_dims), self._dims(fixed, num_fixed)
            self._rules[address] = Rule(self._text(name), *texts, bool(matrices), *place)
        return self._rules[address]

    def _states(self, addresses: Iterable[int], query: Query) -> Iterator[State]:
        for address in addresses:
            fields = _read(_STATE, address)
            state = self._state(fields, query)
            if not fields[16]:
                yield state
                continue
            rank, part_rank, shape, part, code_rank, code_part_rank, *of_codes = fields[17:]
            # Of the dims before a row, and its first one, each is one of the parameter's, or none.
            of = state.of_param[:rank]
            of_scales = state._replace(
                name=state.name + SCALE,
                shape=_numbers(shape, rank),
                part=_numbers(part, part_rank),
                of_param=of,
                is_full=False,
                bytes=0,
                inner=math.prod(state.shape[rank:]),
            )
            made_as = codes.OF_NUMBER[fields[16]]
            code, scale = codes.of_number(made_as, state.init)
            coded = state._replace(init=code, format=made_as, floats=state)
            if codes.FORMATS[made_as].words.per_word > 1:
                coded = coded._replace(
                    shape=_numbers(of_codes[0], code_rank),
                    part=_numbers(of_codes[1], code_part_rank),
                    of_param=of,
                    is_full=False,
                )
            yield coded
            yield of_scales._replace(init=scale, storage="f32" if state.storage else "")

    def _state(self, fields: tuple, query: Query) -> State:
        (_, name, dims, num_dims, rank, part_rank, shape, part, of_param, init, size, code, bits, _,
         exists, is_full, *_) = fields  # fmt: skip
        if is_full:
            extents, of = query.shape, _EVERY[:rank]
        else:
            extents = _numbers(shape, rank)
            of = tuple([None if dim < 0 else dim for dim in _numbers(of_param, rank, "i")])
        return State(
            self._text(name),
            self._dims(dims, num_dims),
            extents,
            extents if part == shape else _numbers(part, part_rank),
            of,
            bool(is_full),
            init,
            _STORAGES.get((code, bits), ""),
            size,
            bool(exists),
        )

    def _text(self, address: int) -> str:
        """A name of the interface, which has it where it is."""
        if address not in self._texts:
            self._texts[address] = string_at(address).decode()
        return self._texts[address]

    def _dims(self, address: int, size: int) -> tuple[str, ...]:
        """Of a rule, a state or an operand, likewise."""
        if address not in self._lists:
            texts = [self._text(at) for at in _numbers(address, size, "P")]
            self._lists[address] = tuple(texts)
        return self._lists[address]


class _Queries:
    """Queries as the library reads them."""

    def __init__(self, queries: Sequence[Query]):
        self._keep: dict[object, ctypes.Array] = {}
        size = ctypes.sizeof(TensorQuery)
        self.array = (c_char * (size * max(len(queries), 1)))()
        for place, query in enumerate(queries):
            flat, part = query.range is not None, query.part
            begin, end = query.range or (query.first, 0)
            _QUERY.pack_into(
                self.array,
                place * size,
                size,
                0,
                self._extents(query.options),
                self._extents(query.shape),
                len(query.shape),
                flat,
                0 if part is None else self._extents(part),
                query.sharded,
                begin,
                end,
                *_TYPES[query.param],
                *_TYPES[query.grad],
                self._text(query.master) if query.master else 0,
                query.rounds,
                0,
                self._texts(tuple(name for name, _ in query.coded)),
                len(query.coded),
                self._formats(tuple(codes.FORMATS[own.format].number for _, own in query.coded)),
                self._extents(tuple(own.min_size or 0 for _, own in query.coded)),
            )

    def _extents(self, extents: tuple[int, ...]) -> int:
        if extents not in self._keep:
            self._keep[extents] = (c_int64 * max(len(extents), 1))(*extents)
        return ctypes.addressof(self._keep[extents])

    def _formats(self, numbers: tuple[int, ...]) -> int:
        key = ("formats", numbers)
        if key not in self._keep:
            self._keep[key] = (c_int32 * max(len(numbers), 1))(*numbers)
        return ctypes.addressof(self._keep[key])

    def _texts(self, texts: tuple[str, ...]) -> int:
        key = ("texts", texts)
        if key not in self._keep:
            self._keep[key] = (c_void_p * max(len(texts), 1))(*map(self._text, texts))
        return ctypes.addressof(self._keep[key])

    def _text(self, text: str) -> int:
        if text not in self._keep:
            self._keep[text] = ctypes.create_string_buffer(text.encode())
        return ctypes.addressof(self._keep[text])


def choose_owners(costs: Sequence[float], loads: list[float]) -> list[int]:
    """Which rank steps which of tensors of these costs (:attr:`Tensor.cost`), as a plan chooses:
    the dearest first, each to who has least. ``loads``: the costs of what each rank has already,
    to which they are added."""
    lib, size = _library.load_library(), len(costs)
    owners = (c_int64 * max(size, 1))()
    given, own = (c_double * max(size, 1))(*costs), (c_double * len(loads))(*loads)
    _library.check(lib, lib.stepcChooseOwners(given, size, len(loads), own, owners))
    loads[:] = own
    return owners[:size]


@functools.lru_cache(maxsize=64)
def handle_of(text: bytes) -> Handle:
    """The library's own form of an interface or a manifest, read once."""
    return Handle(text)
