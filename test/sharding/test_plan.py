# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stepc-plan says of a step before it is run, against steps that are run: the
runtime's counters of rounds, calls and bytes, and the tensors that each rank had."""

import subprocess

import numpy as np
import pytest
from definitions import Definition
from driver import STEPC, STORAGES
from oracle import ZOO
from placement import Dims, Flat
from ranks import Sharded, run_ranks
from stepc._mesh import Mesh
from stepc._runtime import Package
from stepc.plan import layouts, planning
from stepc.plan.machines import Machine
from stepc.plan.models import Model
from stepc.plan.models import Tensor as Described
from stepc.plan.package import open_source
from steps import Case, Group, Tensor
from values import fill

SHAPES = [(130, 70), (7,), (5, 33, 9), (1, 9), (1030, 700), (3, 2), (64, 64), (1025,), (9, 1),
          (64, 64), (7,)]  # fmt: skip
STEPS = 2


def zero_cuts(shapes, world):
    """Of each tensor where the line of all is cut: parts of whole vectors."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    length = -(-sum(sizes) // (16 * world)) * 16
    before = 0
    for size in sizes:
        yield [min(max(rank * length - before, 0), size) for rank in
               range(world + 1)]  # fmt: skip
        before += size


def placements(layout, shapes):
    """As the layouts are described, written down anew."""
    for shape, cuts in zip(shapes, zero_cuts(shapes, layout.ranks), strict=True):
        last = len(shape) - 1
        if layout.kind == "zero1":
            yield Flat(("dp",), [*cuts[:-1], int(np.prod(shape))])
        elif layout.name == "fsdp2":
            yield Dims({0: ("dp",)})
        elif layout.name == "hsdp":
            yield Dims({0: ("shard",)})
        elif layout.name == "tp(-1)":
            yield Dims({last: ("tp",)})
        elif layout.name == "tp(-1)*fsdp2":
            yield Dims({0: ("dp",), last: ("tp",)} if last else {0: ("tp", "dp")})
        else:
            yield Dims({})


CASES = [
    ("zero1", 2, {}), ("zero1", 5, {}), ("zero1", 8, {}), ("fsdp2", 3, {}), ("fsdp2", 8, {}),
    ("hsdp", 6, {"shard": 3}), ("tp(-1)", 4, {}), ("tp(-1)*fsdp2", 6, {"tp": 2}), ("ddp", 2, {}),
    ("zero1", 1, {}),
]  # fmt: skip


def compile_all(folder, name, fragments, storages):
    """One package with what all cases need."""
    output = folder / f"{'-'.join([name, *fragments])}.stepc"
    command = [STEPC, str(ZOO / f"{name}.mlir"), "-o", str(output)]
    command += [f"--fragment={ZOO / 'fragments' / f'{f}.mlir'}" for f in fragments]
    roles = zip(("param", "grad", "state"), storages, strict=True)
    command += [f"--{role}={storage}" for role, storage in roles]
    # Of zero1 the step alone, whose parts are bound as they are.
    layouts = [one[0].replace("zero1", "flat=dp") for one in CASES]
    command += [f"--layout={layout}" for layout in dict.fromkeys(layouts)]
    subprocess.run(command, check=True, capture_output=True)
    return output


def make_pair(name, fragments, layout, world, sizes, storages, shapes=SHAPES, package=None):
    """A case that runs and the plan of the same, of the definition or of a package."""
    source = open_source(str(package)) if package else open_source(name, fragments)
    described = tuple(Described(f"t.{i}", s, storages[0]) for i, s in enumerate(shapes))
    request = planning.Request(layout=layout, sizes=sizes, grad=storages[1], state=storages[2])
    made = planning.make(source, Model("case", described), Machine(world), request)
    definition = Definition(
        ZOO / f"{name}.mlir", [ZOO / "fragments" / f"{f}.mlir" for f in fragments]
    )
    rng = np.random.default_rng(world)
    tensors = [
        Tensor(shape, storages, {"param": fill(rng, "normal", shape, storages[0]),
                                 "grad": fill(rng, "normal", shape, storages[1])})
        for shape in shapes
    ]  # fmt: skip
    case = Case(definition, [Group()], tensors, STEPS, label=layout, threads=1)
    mesh = Mesh(tuple(made.layout.axes), tuple(made.layout.axes.values()))
    return made, Sharded(case, mesh, list(placements(made.layout, shapes)))


def bytes_of(launch, role):
    """Of the operands that a rank has, states by name."""
    found = {}
    for row in launch.operands:
        for name, operand in row.items():
            kind = name if name in ("param", "grad") else "state"
            if kind == role:
                found[name] = found.get(name, 0) + operand.view.nbytes
    return found


def check(made, case, package):
    for rank, (_, info, launch) in enumerate(run_ranks(case, package)):
        account = made.rank(rank)
        where = f"rank {rank} of {case.describe()}"
        assert info.exchangeRounds == STEPS * account.rounds, where
        assert info.exchangeCalls == STEPS * len(account.calls), where
        assert info.exchangeBytes == STEPS * account.exchanged, where
        assert info.workspaceBytes == account.workspace, where
        assert bytes_of(launch, "param") == {"param": account.param}, where
        assert bytes_of(launch, "grad") == {"grad": account.grad}, where
        assert bytes_of(launch, "state") == dict(account.states), where


OPTIMIZERS = [("adamw", ()), ("adafactor", ()), ("came", ()), ("lamb", ()),
              ("adamw", ("clip_by_norm",)), ("lamb", ("clip_by_inf_norm",)),
              ("fused_adam", ())]  # fmt: skip


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name, fragments", OPTIMIZERS)
def test_prediction_is_what_the_runtime_counts(name, fragments, tmp_path):
    storages = STORAGES[len(name) % 2]
    path = compile_all(tmp_path, name, fragments, storages)
    package = Package.from_bytes(path.read_bytes())
    for layout, world, sizes in CASES:
        pair = make_pair(name, fragments, layout, world, sizes, storages, package=path)
        check(*pair, package)


def test_a_definition_is_planned_as_its_package(tmp_path):
    path = compile_all(tmp_path, "lamb", (), STORAGES[1])
    for layout, world, sizes in CASES[::3]:
        of_package, of_text = (
            make_pair("lamb", (), layout, world, sizes, STORAGES[1], package=package)[0]
            for package in (path, None)
        )
        assert vars(of_package.account) == vars(of_text.account)


def bucket_cuts(shapes, world, most):
    """As zero=2 cuts: buckets of at most so many bytes of f32, from the last tensor on."""
    buckets, cuts = [[]], {}
    for number in reversed(range(len(shapes))):
        sizes = [4 * int(np.prod(shapes[n])) for n in (*buckets[-1], number)]
        if buckets[-1] and sum(sizes) > most:
            buckets.append([])
        buckets[-1].append(number)
    for bucket in buckets:
        found = zero_cuts([shapes[number] for number in bucket], world)
        cuts |= dict(zip(bucket, found, strict=True))
    return [cuts[number] for number in range(len(shapes))]


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_buckets(name, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "BUCKET_BYTES", 10_000)
    path = compile_all(tmp_path, name, (), STORAGES[0])
    made, case = make_pair(name, (), "zero2", 3, {}, STORAGES[0], package=path)
    cuts = bucket_cuts(SHAPES, 3, 10_000)
    assert len(made.layout.lines) > 3
    ends = [int(np.prod(shape)) for shape in SHAPES]
    case.placements = [Flat(("dp",), [*c[:-1], end]) for c, end in zip(cuts, ends, strict=True)]
    check(made, case, Package.from_bytes(path.read_bytes()))


def test_rounds_do_not_grow_with_tensors():
    # Of ranges of elements, and of rows: what trails whole rows waits for no other rank.
    # torch's Adafactor sends sums and maxima, so a call more than rounds.
    rounds = {
        "adamw": [(0, 0), (0, 0)], "lamb": [(1, 1), (1, 1)], "adafactor": [(2, 2), (1, 1)],
        "torch_adafactor": [(2, 2), (2, 3)], "came": [(3, 3), (2, 2)],
    }  # fmt: skip
    for name, both in rounds.items():
        for layout, expected in zip(("zero1", "fsdp2"), both, strict=True):
            for count in (1, 40):
                made, _ = make_pair(name, (), layout, 4, {}, STORAGES[0], [(65, 17)] * count)
                assert (made.account.rounds, len(made.account.calls)) == expected


def test_the_rank_that_has_the_most(tmp_path):
    """Of dims rank 0 is taken without looking at others."""
    path = compile_all(tmp_path, "came", (), STORAGES[0])
    for layout, world, sizes in CASES:
        made, _ = make_pair("came", (), layout, world, sizes, STORAGES[0], package=path)
        totals = [made.memory_of(made.rank(rank))["total"] for rank in range(world)]
        assert made.memory["total"] == max(totals)


def test_chunks_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for extent in (0, 1, 5, 8, 9, 64):
        for parts in (1, 2, 3, 7, 8):
            chunks = [len(c) for c in torch.arange(extent).chunk(parts)]
            own = [layouts.chunk(extent, parts, at) for at in range(parts)]
            assert own == [*chunks, *[0] * (parts - len(chunks))][:parts]
