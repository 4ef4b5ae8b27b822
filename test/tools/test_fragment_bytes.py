# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a fragment adds to a step: the bytes that it must, and no traversal besides."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
ZOO = ROOT / "frontend" / "optimizers"

# By fragments: bytes per parameter, in f32, and kernels that come to those of an
# optimizer whose only traversal is the update.
ADDED = {
    "unscale accumulation clip_by_value": (0, 0),
    "clip_by_norm": (4, 1),
    "grad_scaler accumulation skip_nonfinite clip_by_norm": (4, 1),
    "ema": (8, 0),
    "swa": (8, 0),
    "param_copy": (2, 0),
}


def traffic(name, variant, fragments):
    """The largest number of bytes per parameter of a rule, and its kernels."""
    storages = "param=f32,grad=f32"
    if "param_copy" in fragments:
        storages += ",state.param_copy=bf16"
    arguments = [f"--fragment={ZOO / 'fragments' / f'{f}.mlir'}" for f in fragments]
    run = subprocess.run(
        [STEPC, ZOO / f"{name}.mlir", *arguments, f"--variant={storages}{variant}",
         "--explain=json"],
        check=True, capture_output=True,
    )  # fmt: skip
    programs = json.loads(run.stdout)["programs"]
    return max((program["bytes"]["moved"], program["kernels"]) for program in programs)


DECAY = ",option.has_weight_decay=true"
# Definitions whose only traversal is the update, with options that keep all their states.
ELEMENTWISE = {
    "adadelta": DECAY, "apollo": ",option.low_rank=false", "dion": ",option.dion=false",
    "adagrad": DECAY, "adam": DECAY + ",option.amsgrad=true", "adamax": DECAY,
    "adamw": ",option.amsgrad=true", "asgd": DECAY, "cpu_adam": DECAY, "dadapt_adam": "",
    "fused_adam": DECAY, "galore_adamw": ",option.low_rank=false", "lion": "", "lomo": "",
    **dict.fromkeys(("jordan_muon", "moonlight_muon"), ",option.use_muon=false"),
    "nadam": DECAY, "radam": DECAY, "rprop": "",
    "rmsprop": DECAY + ",option.centered=true,option.has_momentum=true",
    "sgd": DECAY + ",option.has_momentum=true", "sm3": ",option.has_momentum=true",
    "shampoo": ",option.precondition=false,option.grafting_squares=true,option.grafting=true",
    "soap": ",option.precondition=false", "sophia": ",option.has_estimate=true",
}  # fmt: skip
# Of the others norms, means, factors or products come before the update.
REDUCING = {
    "adafactor", "adalomo", "came", "dadapt_sgd", "deepspeed_lamb", "fused_lamb",
    "galore_adafactor", "gram_muon", "lamb", "lars", "muon", "normuon", "torch_adafactor",
}  # fmt: skip


def test_every_definition_is_here():
    assert {path.stem for path in ZOO.glob("*.mlir")} == set(ELEMENTWISE) | REDUCING
    for name in REDUCING:
        assert traffic(name, "", [])[1] > 1


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_bytes_of_each_fragment(name):
    alone, kernels = traffic(name, ELEMENTWISE[name], [])
    for fragments, (more, traversals) in ADDED.items():
        found = traffic(name, ELEMENTWISE[name], fragments.split())
        assert found == (alone + more, kernels + traversals), fragments


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_bytes_of_an_update_in_one_traversal(name):
    """What needs no traversal, and all there is: one read of the gradient before."""
    alone, kernels = traffic(name, ELEMENTWISE[name], [])
    assert kernels == 1
    cheap = ["unscale", "accumulation", "clip_by_value", "swa", "param_copy"]
    assert traffic(name, ELEMENTWISE[name], cheap) == (alone + 8 + 2, 1)
    every = "grad_scaler accumulation skip_nonfinite clip_by_value clip_by_norm ema param_copy"
    assert traffic(name, ELEMENTWISE[name], every.split()) == (alone + 4 + 8 + 2, 2)


@pytest.mark.parametrize("name", ["lamb", "adafactor"])
def test_an_average_goes_with_the_last_traversal(name):
    alone, kernels = traffic(name, "", [])
    assert kernels > 1
    assert traffic(name, "", ["ema", "param_copy"]) == (alone + 8 + 2, kernels)


@pytest.mark.parametrize("fragment", ["ema", "swa"])
def test_an_average_that_rests_is_not_touched(fragment):
    alone = traffic("adamw", "", [])
    assert traffic("adamw", ",option.averages=false", [fragment]) == alone
    assert traffic("adamw", ",option.averages=true", [fragment]) != alone
