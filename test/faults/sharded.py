#!/usr/bin/env python3
"""As seeded.py, with the faults of what crosses ranks and of kernels of a rank's part:
sharded steps on simulated ranks must differ from the unsharded ones.

    .venv/bin/python test/faults/sharded.py [NAME...]

Those of the passes are called `shard-...`, those of the runtime `exchange-...`.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("faults", "sharding", "fuzz", "exact", "interpreter")
sys.path[:0] = [str(ROOT / "test" / folder) for folder in FOLDERS] + [str(ROOT / "frontend")]

import seeded  # noqa: E402
from oracle import ZOO  # noqa: E402
from placement import Dims, Flat  # noqa: E402
from rank_engine import differing, equal_elements  # noqa: E402
from ranks import Sharded, WholeLaunch, gather, run_ranks  # noqa: E402
from seeded import Tensor  # noqa: E402
from stepc import _runtime  # noqa: E402
from stepc._mesh import Mesh  # noqa: E402
from steps import interpret  # noqa: E402
from test_bounds import outside  # noqa: E402

DEADLINE = 5_000  # milliseconds
LEAST_EQUAL = 0.99
# Of ranks that have no gradient where others have one: the runtime's own tests.
ELSEWHERE = ("exchange-idle-not-neutral",)


class Case(Sharded):
    """``label`` and so on are those of the case itself."""

    def __getattr__(self, name):
        return getattr(self.__dict__["case"], name)


def cuts(size, *parts):
    return [0, *(int(size * part) for part in parts), size]


def make_case(name, files, mesh, tensors, groups=None, number=1, late=None, **more):
    """Tensors are pairs of a Tensor and its placement."""
    case = seeded.make_case(
        name, files, [tensor for tensor, _ in tensors], groups, number=number, **more
    )
    for tensor, (given, _) in zip(case.tensors, tensors, strict=True):
        tensor.participates = [step not in given.idle for step in range(number)]
        if number == 1:
            # The interpreter takes one for all steps.
            tensor.arrays.pop("grad:0")
    return Case(case, mesh, [placement for _, placement in tensors], late or {})


def flat_cases():
    """Ranges that begin and end inside of rows, blocks of rows and items."""
    line = Mesh(("dp",), (3,))
    flat = lambda shape, *parts: (  # noqa: E731
        Tensor(shape),
        Flat(("dp",), cuts(int(np.prod(shape)), *parts)),
    )
    ranges = [flat((130, 70), 0.31, 0.52), flat((3, 65, 9), 0.2, 0.7), flat((3, 4200), 0.15, 0.9),
              flat((2, 5), 0.0, 0.4), flat((66, 3), 0.5, 0.5), flat((1030,), 0.1, 0.3)]  # fmt: skip
    # What a whole tensor leaves in the memory that ranges use next is not theirs.
    beside = [(Tensor((3, 4200)), Dims({})), *ranges]
    adafactor = ZOO / "adafactor.mlir"
    small = [Tensor((70, 9)), Tensor((130, 33), idle=(1,)), Tensor((50,))]
    placed = [Flat(("dp",), cuts(630, 0.4, 0.6)), Flat(("dp",), cuts(4290, 0.3, 0.9)), Dims({})]
    options = {"min_dim_size_to_factor": 2}
    return [
        with_options(make_case("flat adafactor", [adafactor], line, ranges), options),
        make_case("flat parts", [ROOT / "test" / "faults" / "parts.mlir"], line, beside),
        make_case("flat lamb", [ZOO / "lamb.mlir"], line, ranges),
        with_options(make_case("flat came, idle", [ZOO / "came.mlir"], line,
                               list(zip(small, placed, strict=True)), number=3), options),
    ]  # fmt: skip


def with_options(case, options):
    for group in case.case.groups:
        known = {option["name"] for option in case.definition.interface["options"]}
        group.options |= {name: value for name, value in options.items() if name in known}
    return case


def dims_cases():
    """Dims cut by one axis and by two, beside whole tensors and tensors of one stage."""
    grid = Mesh(("a", "b"), (2, 2))
    both, rows, columns = {0: ("a",), 1: ("b",)}, {0: ("a",)}, {1: ("b",)}
    tensors = [
        (Tensor((130, 70)), Dims(both)),
        (Tensor((66, 33)), Dims(rows)),
        (Tensor((7, 5), group=1), Dims(columns)),
        (Tensor((70, 40)), Dims({0: ("a", "b")})),
        (Tensor((12, 30)), Dims({})),
        (Tensor((2, 3, 5)), Dims({1: ("a",), 2: ("b",)})),
        (Tensor((9, 6)), Dims({0: ("b",)}, at={"a": 1})),
        (Tensor((40,), group=1), Flat(("b", "a"), cuts(40, 0.2, 0.4, 0.9))),
    ]
    nan = [(Tensor((30, 4), grads={0: np.nan}), Dims(both)), (Tensor((8, 8)), Dims(rows))]
    clip = ZOO / "fragments" / "clip_by_norm.mlir"
    inf_clip = ZOO / "fragments" / "clip_by_inf_norm.mlir"
    clips = [ZOO / "adamw.mlir", clip, inf_clip]
    parts = ROOT / "test" / "faults" / "parts.mlir"
    groups = [{"lr": 0.1}, {"lr": 0.3}]
    idle = [
        (Tensor((30, 40), idle=(1,)), Dims(both)),
        (Tensor((9, 6), group=1, idle=(0, 2)), Dims(rows, at={"b": 1})),
        (Tensor((6, 8)), Dims(columns)),
    ]
    return [
        make_case("parts of dims", [parts], grid, tensors, groups),
        make_case("parts of dims, nan", [parts], grid, nan),
        with_options(
            make_case("adafactor of dims", [ZOO / "adafactor.mlir"], grid, tensors, [{}, {}]),
            {"min_dim_size_to_factor": 2},
        ),
        make_case("clipped adamw", clips, grid, tensors, [{"max_norm": 0.1}] * 2, number=2),
        make_case("largest, nan", [ZOO / "sgd.mlir", inf_clip], grid, nan, number=2),
        make_case("idle parts", [parts], grid, idle, groups, number=3),
        make_case("dadapt", [ZOO / "dadapt_adam.mlir"], grid, tensors, [{}, {"lr": 2.0}]),
    ]


def sum_cases():
    """Of sums that do not depend on the order: every bit is the unsharded run's."""
    grid, flags = Mesh(("a", "b"), (2, 2)), ["--reproducible"]
    tensors = [
        (Tensor((130, 70)), Dims({0: ("a",), 1: ("b",)})),
        (Tensor((66, 33)), Dims({0: ("b",)})),
        (Tensor((900,)), Flat(("b", "a"), cuts(900, 0.2, 0.4, 0.9))),
        (Tensor((12, 30)), Dims({})),
    ]
    clip, parts = ZOO / "fragments" / "clip_by_norm.mlir", ROOT / "test" / "faults" / "parts.mlir"
    odd = [(Tensor((130, 70), grads={0: np.inf}), Dims({0: ("a",), 1: ("b",)})), *tensors[1:]]
    f64 = ("f64",) * 3
    return [
        make_case("sums of parts", [parts], grid, tensors, storages=f64, flags=flags),
        make_case("sums of parts, inf", [parts], grid, odd, flags=flags),
        make_case("sums, clipped", [ZOO / "adamw.mlir", clip], grid, tensors, [{"max_norm": 0.1}],
                  storages=f64, flags=flags),
    ]  # fmt: skip


class Suite(seeded.Suite):
    """``expected``: bounds of one step; of several, only the unsharded run is known."""

    sharded = True
    elsewhere = ELSEWHERE

    def make_cases(self):
        return [*flat_cases(), *dims_cases(), *sum_cases()]

    def interpret(self):
        one = [case.case for case in self.cases if case.steps == 1]
        bounds = iter(interpret(one, mode="bound"))
        return [next(bounds) if case.steps == 1 else None for case in self.cases]

    def load_plain(self, index):
        """The unsharded results of the sound compiler and runtime."""
        data = self.packages[index]
        return WholeLaunch(self.cases[index], _runtime.Package.from_bytes(data)).run()

    def run_case(self, index, data):
        case, bounds = self.cases[index], self.expected[index]
        package = _runtime.Package.from_bytes(data)
        with np.errstate(all="ignore"):
            plain = self.load_plain(index)
            found = gather(case, run_ranks(case, package, DEADLINE))
        if found.keys() != plain.keys():
            return next(iter(differing(found, plain).items()))
        if bounds is None:
            for name in plain:
                if np.mean(equal_elements(found[name], plain[name])) < LEAST_EQUAL:
                    return f"{name}: {differing(found, plain)[name]}"
            return None
        if case.definition.flags and (others := differing(found, plain)):
            return next(f"{name}: {text}" for name, text in others.items())
        known = {k: v for k, v in bounds.items() if k.rpartition(":")[0] in plain}
        return next((f"{name}: {text}" for name, text in outside(found, known).items()), None)


if __name__ == "__main__":
    sys.exit(1 if seeded.run_all(sys.argv[1:], make=Suite) else 0)
