# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases of which digests are taken, for each definition of the zoo: generators of pairs of
a name and a digest. A name begins with the family's and the definition's; it says nothing of how
the compiler works, so that a case is found again after a change."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
from device_models import DeviceMemory
from device_ranks import MESH, World, compile_ranks
from device_ranks import SPECS as PLACED
from device_rules import SPECS, STORAGES, RuleModel, make_rule_package
from double import get_double, make_zip
from driver import STORAGES as STORED
from layouts import PRESETS, WORLDS, ShardedPackages, make_case
from oracle import ZOO, widen
from ranks import gather, run_ranks
from stepc._runtime import Package
from steps import Packages, launch
from stepwise import with_rates
from test_whole_steps import CHOSEN, HYPERS
from test_whole_steps import make_cases as make_whole_cases

DEFINITIONS = sorted(path.stem for path in ZOO.glob("*.mlir"))
WHOLE = 12  # cases of each definition, and of it behind fragments
STEPS = 3
DEVICE_STEPS = 3
# Of matrices alone, of which no rank has a part. Sharded tensors are cut, so there is no case; of
# a device's there are some that are matrices, and whole.
UNCUT = {"muon", "gram_muon", "normuon", "jordan_muon", "moonlight_muon"}
# Of which no rank has a part either, and no device a routine.
DECOMPOSED = {"apollo", "dion", "galore_adamw", "galore_adafactor", "shampoo", "soap"}


def take_digest(results):
    """Of arrays by name. A case that is refused, for which there is a message, raises: it would
    have the digest of any other."""
    assert not isinstance(results, str), results
    digest = hashlib.sha256()
    for name, value in sorted(results.items()):
        array = np.asarray(value)
        array = widen(array) if array.dtype == np.uint16 else array
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def run_whole(name, folder):
    """Unsharded, alone and behind fragments: storages, options, groups, strides."""
    for own, fragments in CHOSEN:
        if own != name:
            continue
        cases = make_whole_cases(name, fragments, WHOLE)
        packages = Packages(folder)
        packages.prepare(cases)
        label = "+".join([name, *fragments])
        for number, case in enumerate(cases):
            yield f"whole {label} {number}", take_digest(launch(case, packages))


def run_sharded(name, folder):
    """On simulated ranks in each preset, and with reproducible sums in some."""
    if name in UNCUT | DECOMPOSED:
        return
    chosen = [
        (preset, world, storages, ())
        for (k, preset), storages in itertools.product(enumerate(PRESETS), STORED[:2] + STORED[3:4])
        for world in (WORLDS[1 + k % 6], 4 if k % 6 != 2 else 8)
    ]
    chosen += [(preset, 4, STORED[0], ("--reproducible",)) for preset in PRESETS]
    for flags in ((), ("--reproducible",)):
        wanted = [own for own in chosen if own[3] == flags]
        cases = [
            with_rates(
                make_case(name, (), preset, world, storages=storages, hypers=HYPERS.get(name),
                          steps=STEPS, missing=True, flags=flags)
            )
            for preset, world, storages, _ in wanted
        ]  # fmt: skip
        packages = ShardedPackages(Packages(folder))
        packages.prepare(cases)
        for (preset, world, storages, _), case in zip(wanted, cases, strict=True):
            words = [preset.replace(" ", "-"), str(world), "-".join(storages), *flags]
            results = gather(case, run_ranks(case, packages.get(case)))
            yield f"sharded {name} {' '.join(words)}", take_digest(results)


def number_arrays(arrays):
    return {f"{number:04}": array for number, array in enumerate(arrays)}


def run_device(name, folder):
    """On a device of the double, whole and in parts."""
    if name in DECOMPOSED:
        return
    double = get_double()
    double.reset()
    specs = [spec for spec in SPECS if name not in UNCUT or len(spec[0]) == 2]
    model = RuleModel(make_rule_package(name, folder), DeviceMemory(double), specs=specs)
    for seed in range(DEVICE_STEPS):
        model.set_grads(seed)
        model.plan.step()
    yield f"device {name} whole", take_digest(number_arrays(model.results()))
    del model
    if name in UNCUT | DECOMPOSED:
        return
    double.reset()
    for storage in STORAGES:
        members = compile_ranks(name, folder, MESH, PLACED, storages=[storage])
        package = Package.from_bytes(make_zip(members))
        world = World(package, MESH, PLACED, double, storages=[storage])
        for seed in range(DEVICE_STEPS):
            world.step(seed)
        results = [array for own in world.models for array in own.results()]
        yield (
            f"device {name} parts {storage.partition(',')[0]}",
            take_digest(number_arrays(results)),
        )
        del world


FAMILIES = (run_whole, run_sharded, run_device)
