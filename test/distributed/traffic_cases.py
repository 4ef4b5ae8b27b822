# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives of training steps on four ranks, against what stepc-plan says of them."""

import contextlib
from collections import Counter

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main
from stepc import errors
from stepc.plan import layouts, planning
from stepc.plan.machines import Machine
from stepc.plan.models import Model, Tensor
from stepc.plan.package import open_source
from stepc.torch.ranks import agreement as _agreement
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import ALL

WORLD = 4
OPERATIONS = {"allreduce": "all_reduce", "alltoall": "all_to_all", "allgather": "all_gather",
              "reduce_scatter": "reduce_scatter", "broadcast": "broadcast"}  # fmt: skip


class Collectives(TorchDispatchMode):
    """Calls, and bytes of the larger buffer, by operation."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d" and "barrier" not in func.name():
            name = next(to for part, to in OPERATIONS.items() if part in func.name())
            flat = [t for a in args for t in (a if isinstance(a, list) else [a])]
            self.calls[name] += 1
            self.bytes[name] += max(t.nbytes for t in flat if isinstance(t, torch.Tensor))
        return func(*args, **(kwargs or {}))


def make_model():
    """Blocks and a root, with rows that four ranks cannot share evenly."""
    torch.manual_seed(0)
    blocks = [torch.nn.Linear(33, 33) for _ in range(3)]
    layers = {"embedding": torch.nn.Linear(7, 33), "head": torch.nn.Linear(33, 5)}
    return torch.nn.ModuleDict({**layers, "blocks": torch.nn.Sequential(*blocks)})


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = make_model()

    def forward(self, x):
        return self.parts["head"](self.parts["blocks"](self.parts["embedding"](x)))


def planned(name, model, layout, **settings):
    tensors = tuple(Tensor(n, tuple(p.shape)) for n, p in model.named_parameters())
    request = planning.Request(layout=layout, **settings)
    return planning.make(open_source(name), Model("net", tensors), Machine(WORLD), request)


def of_fullest(counted):
    """Bytes of the rank that has the most, by operation, as a plan says them."""
    every = [None] * WORLD
    dist.all_gather_object(every, dict(counted.bytes))
    return Counter({name: max(own[name] for own in every) for name in counted.bytes})


def expect(made, counted):
    calls, data = Counter(), Counter()
    for row in made.traffic:
        calls[row.operation] += row.calls
        data[row.operation] += row.bytes
    for call in made.account.calls:
        calls["all_reduce"] += 1
        data["all_reduce"] += call.bytes
    assert counted.calls == calls, (counted.calls, calls)
    found = of_fullest(counted)
    assert found == data, (found, data)


def count(net, optimizer):
    """Of the third step: what is done once is behind it."""
    for _ in range(3):
        x = torch.randn(6, 7)
        counted = Collectives()
        with counted:
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return counted


def compare_zero(stage):
    for name, make in (("adamw", st.AdamW), ("deepspeed_lamb", st.colossal.Lamb)):
        for layouts.BUCKET_BYTES in (25 * 2**20, 5000):
            net = Net()
            optimizer = make(
                net.parameters(),
                lr=1e-3,
                zero=stage,
                gradients="local",
                bucket_bytes=layouts.BUCKET_BYTES,
            )
            expect(planned(name, net, f"zero{stage}"), count(net, optimizer))


@case
def zero1():
    compare_zero(1)


@case
def zero2():
    compare_zero(2)


class Tables(torch.nn.Module):
    """Rows of whole blocks of codes and of a short one, and what is too small for codes."""

    def __init__(self):
        super().__init__()
        shapes = {"query": (66, 128), "up": (70, 100), "small": (9, 9), "norm": (7,)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.ones(shape).bfloat16()))

    def forward(self, x):
        return sum(own.float().square().sum() for own in self.parameters()) * x.sum()


@case
def codes_and_remainders():
    """``zero`` cuts where blocks begin: what crosses, and which states a rank has."""
    for stage in (1, 2):
        for layouts.BUCKET_BYTES in (25 * 2**20, 20_000):
            net = Tables()
            tensors = [Tensor(n, tuple(p.shape), "bf16") for n, p in net.named_parameters()]
            request = planning.Request(layout=f"zero{stage}", state="q8", master="remainder")
            made = planning.make(open_source("adamw"), Model("tables", tuple(tensors)),
                                 Machine(WORLD), request)  # fmt: skip
            more = {"gradients": "local", "bucket_bytes": layouts.BUCKET_BYTES}
            optimizer = st.AdamW(net.parameters(), zero=stage, state_dtype="q8",
                                 master="remainder", **more)  # fmt: skip
            expect(made, count(net, optimizer))
            own = Counter()
            for states in optimizer.state.values():
                for name, state in states.items():
                    own[name.partition(".")[0]] += state.nbytes if name != "step" else 0
            assert +own == +made.rank(dist.get_rank()).states, (stage, own)


@case
def a_type_for_what_crosses():
    def counted(**arguments):
        net = Net()
        return count(net, st.AdamW(net.parameters(), zero=1, gradients="local", **arguments)).bytes

    plain, half = counted(), counted(reduce_dtype=torch.bfloat16)
    assert half["all_to_all"] * 2 == plain["all_to_all"]
    assert half["broadcast"] == plain["broadcast"]


@case
def fully_shard():
    from torch.distributed.fsdp import fully_shard as shard

    for name, make in (("adamw", st.AdamW), ("deepspeed_lamb", st.colossal.Lamb)):
        net = Net()
        made = planned(name, net, "fsdp2")
        mesh = init_device_mesh("cpu", (WORLD,))
        for block in net.parts["blocks"]:
            shard(block, mesh=mesh)
        shard(net, mesh=mesh)
        expect(made, count(net, make(net.parameters(), lr=1e-3)))


def crossed(params, optimizer, steps=4):
    """Calls of each step after the first, by operation."""
    found = []
    for _ in range(steps):
        counted = Collectives()
        with counted:
            if optimizer._reducer is not None:
                optimizer.zero_grad()
                sum(param.sum() for param in params).backward()
            else:
                for param in params:
                    param.grad = torch.ones_like(param)
            optimizer.step()
        found.append(dict(counted.calls))
    return found[1:]


@case
def what_must_be_alike_crosses_at_no_call_of_its_own():
    """A step has the calls that its data needs; with ``check_every`` each second one has more."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    partial = [(".*", st.Layout(mesh, [Replicate()], grad="partial"))]
    lines = {"zero": 1, "bucket_bytes": 300}  # two, of a parameter each
    local, reduced = {**lines, "gradients": "local"}, {**lines, "gradients": "reduced"}
    # Of stage 2 ranks say which pass it is, and that it has not broken off.
    told = {"all_reduce": 1, "broadcast": 6}  # of 96 and of 80 elements, in parts of 32
    both = {**told, "all_to_all": 2}
    kinds = {
        "plain": ({}, {}),
        "DTensor": ({}, {}),
        "partial": ({"layouts": partial}, {"all_reduce": 2}),
        "local": (local, both),
        "zero=2": ({**local, "zero": 2}, {**both, "all_reduce": 3}),
        "reduced": (reduced, told),
        "flat": ({**reduced, "flatten_parameters": True}, told),
        "clipped": ({**reduced, "clip": st.ClipByNorm(1.0)}, {**told, "all_reduce": 2}),
    }
    for kind, (more, expected) in kinds.items():
        for every in (None, 2):
            values = [torch.ones(16, 6), torch.ones(80)]
            if kind == "DTensor":
                values = [distribute_tensor(value, mesh, [Shard(0)]) for value in values]
            params = [torch.nn.Parameter(value) for value in values]
            named = [(f"{kind}{i}", param) for i, param in enumerate(params)]
            made = st.AdamW(named, check_every=every, **more)
            for number, calls in enumerate(crossed(params, made), 1):
                due = every is not None and number % every == 0
                # Where ranks are told that gradients are alike, those are compared too.
                extra = (1 + (more.get("gradients") == "reduced")) if due else 0
                found = Counter(calls) - Counter(expected)
                assert found == Counter({"all_reduce": extra} if extra else {}), (kind, calls)
                assert not Counter(expected) - Counter(calls), (kind, calls)


@case
def zero1_over_ddp():
    net, layouts.BUCKET_BYTES = Net(), 25 * 2**20
    optimizer = st.AdamW(net.parameters(), zero=1, gradients="reduced")
    counted = count(net, optimizer)
    rows = planned("adamw", net, "zero1", gradients="reduced").traffic
    rows = {row.operation: (row.calls, row.bytes) for row in rows if row.calls is not None}
    data = of_fullest(counted)
    assert {name: (calls, data[name]) for name, calls in counted.calls.items()} == rows


class CountedStore:
    """The store of the process group; what is asked of it is counted."""

    def __init__(self, store):
        self.store, self.calls = store, 0

    def __getattr__(self, name):
        self.calls += 1
        return getattr(self.store, name)


@contextlib.contextmanager
def counted_store():
    store, get = distributed_c10d._get_default_store(), distributed_c10d._get_default_store
    counted = CountedStore(store)
    try:
        # The same store to those who remember what they have noted in it.
        distributed_c10d._get_default_store = lambda: counted
        _agreement._book._store = counted
        yield counted
    finally:
        distributed_c10d._get_default_store = get
        _agreement._book._store = store


def of_layout(kind, name, values):
    """Parameters, an optimizer and what makes a gradient of a whole one. All are named."""
    mesh, rank = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",)), dist.get_rank()
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    cut = {
        "DTensor": lambda value: distribute_tensor(value, mesh, [Shard(0)]),
        "layouts": lambda value: value.chunk(WORLD)[rank].clone(),
        "both": lambda value: value.chunk(2)[rank % 2].clone(),
    }.get(kind, torch.clone)
    params = [(f"w{i}", torch.nn.Parameter(cut(value))) for i, value in enumerate(values)]
    more = {
        "layouts": {"layouts": [(".*", st.Layout(mesh, [Shard(0)]))]},
        "both": {
            "layouts": [(".*", st.Layout(grid["tp"], [Shard(0)]))],
            "zero": 1,
            "gradients": "local",
            "process_group": grid["dp"].get_group(),
        },
        "reduced": {"zero": 1, "gradients": "reduced"},
        "local": {"zero": 1, "gradients": "local"},
    }.get(kind, {})
    return params, ALL[name](params, **more), cut


def what_crosses(optimizer, params, store, change):
    """Collectives below torch.distributed in a step, and what is asked of the store."""
    change(params)
    counted, calls = Collectives(), store.calls
    with counted:
        optimizer.step()
    return dict(counted.calls), store.calls - calls


@case
def a_change_of_pointers_exchanges_nothing():
    """Gradients that are new tensors, on all ranks and on one, and plain parameters of one rank
    in other memory: the same calls as in the step before, and not a word to the store, to which
    the first step has talked."""
    kinds = [("DTensor", "AdamW"), ("DTensor", "FusedLamb"), ("DTensor", "CAME"),
             ("layouts", "AdamW"), ("layouts", "FusedLamb"), ("reduced", "AdamW"),
             ("reduced", "FusedLamb"), ("local", "CAME"), ("both", "hf.Adafactor")]  # fmt: skip
    with counted_store() as store:
        for kind, name in kinds:
            values = [torch.randn(8, 6), torch.randn(12)]
            params, optimizer, cut = of_layout(kind, name, values)

            def renew(params, cut=cut, values=values):
                kept = [param.grad for _, param in params]  # so that memory is another
                for (_, param), value in zip(params, values, strict=True):
                    param.grad = cut(torch.ones_like(value))
                return kept

            def renew_on_one(params):
                if dist.get_rank() == 1:
                    for _, param in params:
                        param.grad = param.grad.clone()

            def move_on_one(params):
                if dist.get_rank() == 1:
                    for _, param in params:
                        param.data = param.data.clone()

            first = what_crosses(optimizer, params, store, renew)
            assert first[1] > 0, (kind, name, first)
            still = what_crosses(optimizer, params, store, lambda params: None)
            assert still[1] == 0, (kind, name, still)
            assert bool(still[0]) == ((kind, name) not in kinds[0:4:3]), (kind, name, still)
            for change in (renew, renew_on_one, renew, move_on_one if kind != "DTensor" else renew):
                found = what_crosses(optimizer, params, store, change)
                assert found == still, (kind, name, found, still)


@case
def a_step_that_one_rank_refused_asks_nobody_later():
    """What ranks have told each other is known to the one that binds anew alone."""
    values = [torch.randn(8, 6), torch.randn(12)]
    with counted_store() as store:
        params, optimizer, cut = of_layout("layouts", "AdamW", values)
        for (_, param), value in zip(params, values, strict=True):
            param.grad = cut(torch.ones_like(value))
        optimizer.step()
        if dist.get_rank() == 1:
            good = params[0][1].grad
            params[0][1].grad = good.to_sparse()
            try:
                optimizer.step()
                raise AssertionError("a sparse gradient was stepped")
            except (errors.StepcError, RuntimeError):
                params[0][1].grad = good
        else:
            optimizer.step()
        found = what_crosses(optimizer, params, store, lambda params: None)
        assert found == ({}, 0), found
        assert "?" not in optimizer.describe_layouts()


if __name__ == "__main__":
    assert dist.is_available()
    main()
