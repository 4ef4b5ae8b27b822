# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are threads of the process, each with a plan and a part of every tensor, on the
processor or on devices of the double, with the same communicator underneath.
"""

import ctypes
import sys
import threading

import numpy as np
from device_models import (
    DTYPES,
    DeviceMemory,
    Memory,
    Operand,
    get_hypers,
    make_values,
    name_variants,
)
from device_rules import STORAGES, RuleModel
from double import ROOT, ZOO, compile_package, read_interface
from stepc import _runtime as runtime
from stepc import _structures as structures
from stepc._mesh import (
    ALL_GATHER,
    ENQUEUE,
    ENQUEUE_FINISH,
    ENQUEUE_START,
    MAX_I64,
    WAIT,
    CommunicatorStruct,
    Mesh,
    ReduceCall,
    SimulatedWorld,
    communicator_of,
)

sys.path.append(str(ROOT / "test" / "sharding"))
from placement import Dims, Flat

MESH = Mesh(("a", "b"), (2, 2))
# Ranges that begin and end within rows, leaves and blocks of rows, some of them empty; dims
# that do not divide, of which some ranks have nothing; tensors that all ranks have.
SPECS = [
    ((67, 33), Flat(("a", "b"), [0, 0, 700, 2145, 2211])),
    ((3, 66, 5), Flat(("a", "b"), [0, 7, 671, 988, 990])),
    ((1100,), Flat(("a", "b"), [0, 1030, 1030, 1099, 1100])),
    ((66, 9), Dims({0: ("a",), 1: ("b",)})),
    ((3, 2, 7), Dims({0: ("a", "b")})),
    ((5, 7), Dims({})),
    ((3,), Dims({0: ("b",)})),
]
# Of the first all ranks but one have nothing.
LINE = Mesh(("dp",), (3,))
PARTLY = [
    ((40, 3), Flat(("dp",), [0, 120, 120, 120])),
    ((9, 5), Flat(("dp",), [0, 20, 31, 45])),
    ((7,), Dims({})),
]


def write_message(message, size, error):
    text = str(error).encode()[: size - 1]
    ctypes.memmove(message, text + b"\0", len(text) + 1)


BEGIN = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
READY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class Meetings:
    """Transfers of ranks on streams of the double: one is made when those of all ranks of its
    group have come to it. What is called by the double touches memory, and calls nothing.
    """

    def __init__(self, mesh):
        self.mesh = mesh
        self.kept, self.met, self.counts = {}, {}, {}
        self.fault = ""
        self.calls = BEGIN(self.begin), READY(self.is_ready)

    def keep(self, rank, transfer):
        """A copy of it; what the double is to call with."""
        axes = [a for k, a in enumerate(self.mesh.names) if transfer.axes >> k & 1]
        fixed = [k for k, a in enumerate(self.mesh.names) if a not in axes]
        own = self.mesh.coordinates(rank)
        group = [r for r in range(int(np.prod(self.mesh.sizes)))
                 if all(self.mesh.coordinates(r)[k] == own[k] for k in fixed)]  # fmt: skip
        received = transfer.receiveBytes[: len(group)]
        gathers = transfer.kind == ALL_GATHER
        sent = [received[group.index(rank)]] if gathers else transfer.sendBytes[: len(group)]
        number = 1 + len(self.kept)
        self.kept[number] = (
            rank, tuple(group), gathers, transfer.send, transfer.receive, sent, received, None
        )  # fmt: skip
        return number

    def begin(self, number):
        """It comes onto a stream."""
        rank, group, *rest, _ = self.kept[number]
        turn = self.counts[rank, group] = self.counts.get((rank, group), 0) + 1
        made = 1 + len(self.kept)
        self.kept[made] = (rank, group, *rest, turn)
        return made

    def is_ready(self, number):
        own = self.kept[number]
        here = self.met.setdefault((own[1], own[-1]), {})
        if here.get(own[0]) is None:
            here[own[0]] = own
            if len(here) == len(own[1]):
                self.exchange([here[rank] for rank in own[1]])
                here["done"] = True
        return int("done" in here)

    def exchange(self, works):
        def read(sender, place):
            gathers, send, sent = sender[2], sender[3] or 0, sender[5]
            begin = 0 if gathers else sum(sent[:place])
            size = sent[0] if gathers else sent[place]
            return ctypes.string_at(send + begin, size) if size else b""

        pieces = [[read(sender, k) for sender in works] for k in range(len(works))]
        for own, parts in zip(works, pieces, strict=True):
            at, received = own[4] or 0, own[6]
            if [len(part) for part in parts] != received or own[2] != works[0][2]:
                self.fault = self.fault or f"rank {own[0]} is sent other pieces than it receives"
                continue
            for part in parts:
                ctypes.memmove(at, part, len(part))
                at += len(part)


class StreamCommunicator:
    """Another communicator's rounds for streams of the double: waits for the stream, and
    takes what crosses to the host and back.
    """

    def __init__(self, inner, double, device, rank=0, meetings=None):
        self.inner, self.double, self.device = inner, double, device
        self.rank, self.meetings = rank, meetings
        self.rounds, self.waits, self.failing = [], 0, None
        self.transfers, self.failing_transfer, self.finished = [], None, 0
        self.own_stream = double.make_stream(device)
        self.events = {}
        self.struct = CommunicatorStruct(
            ctypes.sizeof(CommunicatorStruct), None, inner.reduce, ENQUEUE(self.enqueue),
            WAIT(self.wait),
        )  # fmt: skip
        if meetings:
            self.struct.enqueueStart = ENQUEUE_START(self.enqueue_start)
            self.struct.enqueueFinish = ENQUEUE_FINISH(self.enqueue_finish)

    def reduce(self, calls, message, size):
        return self.inner.reduce(self.inner.context, calls, len(calls), message, size)

    def enqueue(self, _context, calls, count, stream, message, size):
        try:
            if self.failing == len(self.rounds):
                raise AssertionError("a cable is loose")
            self.rounds.append([(c.axes, c.reduction, c.data, c.count) for c in calls[:count]])
            return self.make_round(calls[:count], stream, message, size)
        except BaseException as error:
            write_message(message, size, error)
            return 1

    def make_round(self, calls, stream, message, size):
        self.double.synchronize(stream or 0, self.device)
        arrays = [np.zeros(call.count, np.int64) for call in calls]
        own = (ReduceCall * len(calls))(*calls)
        for call, array in zip(own, arrays, strict=True):
            array[:] = self.double.get(call.data, array, self.device)
            call.data = array.ctypes.data
        code = self.reduce(own, message, size)
        for call, array in zip(calls, arrays, strict=True):
            self.double.put(call.data, array, self.device)
        return code

    def record(self, stream):
        event = ctypes.c_void_p()
        self.double.call("cuEventCreate", ctypes.byref(event), 2)
        self.double.call("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def let_wait(self, stream, event):
        self.double.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self.double.call("cuEventDestroy_v2", event)

    def enqueue_start(self, _context, transfer, stream, work, message, size):
        """On a stream of its own, behind what is on the other one."""
        try:
            if self.failing_transfer == len(self.transfers):
                raise AssertionError("a cable is loose")
            number = self.meetings.keep(self.rank, transfer[0])
            self.transfers.append(self.meetings.kept[number][1:3])
            self.let_wait(self.own_stream, self.record(stream))
            self.double.call(
                "cudaDoubleEnqueueWork", ctypes.c_void_p(self.own_stream), *self.meetings.calls,
                ctypes.c_void_p(number),
            )  # fmt: skip
            self.events[number] = self.record(self.own_stream)
            work[0] = number
            return 0
        except BaseException as error:
            write_message(message, size, error)
            return 1

    def enqueue_finish(self, _context, work, stream, message, size):
        try:
            self.finished += 1
            self.let_wait(stream, self.events.pop(work))
            return 0
        except BaseException as error:
            write_message(message, size, error)
            return 1

    def wait(self, _context, stream, message, size):
        self.waits += 1
        code = self.double.synchronize(stream or 0, self.device)
        if code:
            write_message(message, size, f"code {code}")
        return code


class AloneCommunicator(StreamCommunicator):
    """The other ranks have the neutral elements: rounds leave everything as it is. So
    they can be captured.
    """

    def __init__(self, double, device=0):
        self.host = communicator_of(lambda calls: None)
        super().__init__(self.host, double, device)

    def make_round(self, calls, stream, message, size):
        assert all(call.reduction in (0, MAX_I64) and call.count > 0 for call in calls)
        return 0


class RankTensor:
    """A rank's part of a parameter and its gradient."""

    own_states = True

    def __init__(self, memory, storages, name, spec, seed, mesh, rank):
        shape, placement = spec
        self.name, self.shape, self.placement = name, shape, placement
        self.mesh, self.rank, self.seed = mesh, rank, seed
        self.struct = placement.layout(mesh, rank, shape).struct(mesh)
        self.operands = []
        for k, (role, storage) in enumerate(zip(("param", "grad"), storages, strict=True)):
            part = self.cut(storage, 100 * seed + k)
            own = Operand(memory, part.reshape(-1), 0, part.shape)
            own.role, own.storage = role, storage
            own.describe(storage)
            own.tensor.ndim = part.ndim
            self.operands.append(own)

    def cut(self, storage, seed):
        values = make_values(storage, int(np.prod(self.shape)), seed).reshape(self.shape)
        return self.placement.cut(self.mesh, self.rank, self.shape, values)

    def of_role(self, role):
        return [operand for operand in self.operands if operand.role == role]

    def binding(self, group):
        binding = structures.Binding()
        binding.name, binding.group, binding.fresh = self.name.encode(), group, 1
        binding.param = ctypes.addressof(self.of_role("param")[0].tensor)
        binding.grad = ctypes.addressof(self.of_role("grad")[0].tensor)
        binding.layout = ctypes.addressof(self.struct)
        return binding

    def set_grad(self, seed):
        (grad,) = self.of_role("grad")
        grad.write(self.cut(grad.storage, seed).reshape(-1))


class RankModel(RuleModel):
    """The plan of one rank; `specs` are shapes and placements. `group_of` each tensor."""

    def __init__(self, package, memory, mesh, rank, communicator, specs, storages=("param=f32",),
                 groups=1, group_of=None, options=(), **cuda):  # fmt: skip
        self.package, self.memory, self.cuda = package, memory, cuda
        self.mesh, self.rank, self.communicator = mesh, rank, communicator
        self.hypers = get_hypers(package.manifest)
        known = {option["name"] for option in package.manifest["options"]}
        self.options = {k: v for k, v in dict(options).items() if k in known}
        self.tensors = [
            RankTensor(memory, STORAGES[name], f"w{v}.{s}", spec, 10 * v + s, mesh, rank)
            for v, name in enumerate(storages)
            for s, spec in enumerate(specs)
        ]
        group_of = group_of or (lambda k: k % groups)
        self.bindings = [tensor.binding(group_of(k)) for k, tensor in enumerate(self.tensors)]
        self.groups = list(range(groups))
        self.begin()

    def begin(self):
        self.plan = runtime.Plan(self.package, threads=1)
        if self.memory.place != Memory.place:
            self.plan.set_cuda(self.memory.place[1], **self.cuda)
        self.plan.set_mesh(self.mesh.struct(self.rank), self.communicator)
        for _ in self.groups:
            self.plan.add_group(self.options, tuple(self.hypers))
        self.ids = self.plan.bind((structures.Binding * len(self.bindings))(*self.bindings))

    def set_has_grad(self, has):
        """`has` of a tensor's number."""
        for k, tensor in enumerate(self.tensors):
            grad = tensor.of_role("grad")[0]
            self.plan.set_grad(self.ids[k], grad.tensor if has(k) else None)

    def make_grads_negative(self, seed):
        """The largest of each rank being another one."""
        self.set_grads(seed)
        for tensor in self.tensors:
            grad = tensor.of_role("grad")[0]
            grad.write((-2 - self.rank - np.abs(grad.read())).astype(grad.array.dtype))

    def overflow(self, number, value):
        """Makes an element of a gradient, if the rank has one, infinite or NaN."""
        grad = self.tensors[number].of_role("grad")[0]
        values = grad.read()
        if values.size:
            values[-1] = DTYPES[grad.storage][0](value)
            grad.write(values)


def run_ranks(mesh, work):
    """`work(rank)` on a thread each; the results, or what the first failing rank raised."""
    count = int(np.prod(mesh.sizes))
    results, raised = [None] * count, [None] * count

    def run(rank):
        try:
            results[rank] = work(rank)
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        if error is not None:
            raise error
    return results


class World:
    """The ranks of a mesh on the processor, or on devices of the double: all on one, or each
    on its own.
    """

    def __init__(self, package, mesh, specs, double=None, devices=1, **arguments):
        self.mesh, self.double = mesh, double
        self.world = SimulatedWorld(mesh, deadline_ms=20_000)
        self.communicators = [self.world.communicator(r) for r in range(np.prod(mesh.sizes))]
        if double:
            self.communicators = [
                StreamCommunicator(own, double, rank % devices)
                for rank, own in enumerate(self.communicators)
            ]

        def make(rank):
            own = self.communicators[rank]
            if not double:
                return RankModel(package, Memory(), mesh, rank, own, specs, **arguments)
            device = rank % devices
            memory, stream = DeviceMemory(double, device), double.make_stream(device)
            return RankModel(
                package, memory, mesh, rank, own.struct, specs, stream=stream, **arguments
            )  # fmt: skip

        self.models = [make(rank) for rank in range(np.prod(mesh.sizes))]

    def each(self, work):
        return run_ranks(self.mesh, lambda rank: work(self.models[rank]))

    def step(self, seed, has=None, overflow=None):
        """One step of all ranks: `has(k)` a gradient, and which tensor's is not finite."""
        for model in self.models:
            model.set_grads(seed)
            if has:
                model.set_has_grad(has)
            if overflow is not None:
                model.overflow(overflow, np.inf)
        self.each(lambda model: model.plan.step())


def compile_ranks(name, folder, mesh, specs, *fragments, storages=("param=f32",), flags=()):
    """The members of a package with a variant for each placement."""
    arguments = [f"--fragment={ZOO / 'fragments' / fragment}.mlir" for fragment in fragments]
    plain = name_variants(read_interface(name, *arguments), list(storages))
    wanted = list(plain)
    for shape, placement in specs:
        request = placement.layout(mesh, 0, shape).request()
        wanted += [f"{variant},{request}" for variant in plain if request]
    flags = [*arguments, *dict.fromkeys(wanted), *flags]
    return compile_package(name, flags, folder)
