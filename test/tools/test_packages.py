# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every definition of the zoo, and some odd ones, as a package: it is made, loads
in the runtime, and gives the interpreter's bits in every variant.
"""

import itertools
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("STEPC_BIN", ROOT / "build" / "bin"))
ZOO = sorted((ROOT / "frontend" / "optimizers").glob("*.mlir"))
STORAGES = [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("bf16", "f32", "bf16"),
            ("f64", "f64", "f64")]  # fmt: skip

# Name: the hyper-parameters and options, the arguments, the body.
ODD = {
    "two_guards": (
        """
        %mu = step.hyper "mu" = 0.0
        %o = step.option "o" = false
        %d = step.option "d" = %mu gt 0.25""",
        'state "x"[*] if %o, state "y"[*] if %d',
        """
        %x1 = step.add %s0, %g : [*]
        %y1 = step.lerp %s1, %g, %mu : [*], [*], f64
        %u = step.select %o, %x1, %g : [*]
        %v = step.select %d, %y1, %u : [*]
        %p1 = step.sub %p, %v : [*]
        step.return %p1, %x1, %y1""",
    ),
    "swapped_states": ("", 'state "a"[*] = 1.0, state "b"[*] = -2.0', "step.return %p, %s1, %s0"),
    "swapped_with_param": (
        "",
        'state "slow"[*] = 0.3',
        """
        %p1 = step.add %s0, %g : [*]
        step.return %p1, %p""",
    ),
    "constants_stored": (
        '%keep = step.option "keep" = false',
        'state "a"[*], state "b"[*]',
        """
        %third = step.constant 0.3333333333333333
        %tiny = step.constant -1.0e-41
        %a1 = step.select %keep, %s0, %third : [*], f64
        %b1 = step.select %keep, %s1, %tiny : [*], f64
        %p1 = step.sub %p, %g : [*]
        step.return %p1, %a1, %b1""",
    ),
    "masks": (
        '%eps = step.hyper "eps" = 0.5',
        'state "m"[*]',
        """
        %size = step.abs %g : [*]
        %small = step.compare lt, %size, %eps : [*], f64
        %apart = step.compare ne, %g, %s0 : [*]
        %u = step.select %small, %eps, %g : mask[*], f64, [*]
        %m1 = step.select %apart, %u, %s0 : mask[*], [*]
        %p1 = step.sub %p, %u : [*]
        step.return %p1, %m1""",
    ),
    "unicode_names": (
        '%eta = step.hyper "η" = 0.1\n%o = step.option "größer" = true',
        'state "moment é μ"[*]',
        """
        %m1 = step.add %s0, %g : [*]
        %u = step.mul %m1, %eta : [*], f64
        %v = step.select %o, %u, %g : [*]
        %p1 = step.sub %p, %v : [*]
        step.return %p1, %m1""",
    ),
    "one_value_everywhere": (
        "",
        'state "a"[*], state "b"[*]',
        """
        %v = step.sub %p, %g : [*]
        step.return %v, %v, %v""",
    ),
    "gradient_stored": ("", 'state "last"[*]', "step.return %g, %g"),
    "nothing_read": ("", 'state "kept"[*] = 1.0e-40', "step.return %p, %s0"),
    "counts_and_fresh": (
        '%beta = step.hyper "beta" = 0.9',
        'state "m"[*], count, fresh',
        """
        %one = step.constant 1.0
        %power = step.powi %beta, %s1
        %rest = step.sub %one, %power : f64
        %m1 = step.lerp %s0, %g, %rest : [*], [*], f64
        %m2 = step.select %s2, %g, %m1 : [*]
        %h = step.div %m2, %rest : [*], f64
        %p1 = step.sub %p, %h : [*]
        step.return %p1, %m2""",
    ),
    "stateless": ("", "", "%p1 = step.maximum %p, %g : [*]\nstep.return %p1"),
}


def odd_text(name):
    head, states, body = ODD[name]
    roles = [role for role in states.split(", ") if role]
    arguments = ["%p: param[*]", "%g: grad[*]", *(f"%s{i}: {role}" for i, role in enumerate(roles))]
    return (
        f"step.optimizer @{name} {{\n{head}\n"
        f"step.rule @any({', '.join(arguments)}) {{\n{body}\n}}\n}}\n"
    )


def stepc(*arguments):
    run = subprocess.run(
        [BIN / "stepc", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def elements(storage, seed):
    values = np.random.default_rng(seed).standard_normal((3, 13))
    values.flat[:4] = [0.0, -0.0, 1e-40, 7e30]
    if storage == "f64":
        return values
    single = values.astype(np.float32)
    return (single.view(np.uint32) >> 16).astype(np.uint16) if storage == "bf16" else single


def check_package(definition, folder):
    interface = json.loads(stepc(definition, "--interface"))
    settable = [o for o in interface["options"] if "derived" not in o]
    names = [o["name"] for o in settable if isinstance(o["default"], bool)]
    values = [dict(zip(names, bits, strict=True))
              for bits in itertools.product([False, True], repeat=len(names))]  # fmt: skip
    # Of many choices some, in which each option is either.
    values = values[:: (len(values) - 1) // 16 + 1 | 1]
    hypers = [{}] + [{h["name"]: h["default"] or 0.5 for h in interface["hypers"]}]

    package = folder / "p.stepc"
    variants, cases, arrays = [], [], {}
    # Every choice of options in one storage, every storage with one choice.
    wanted = [(STORAGES[0], options) for options in values]
    wanted += [(storage, values[-1]) for storage in STORAGES[1:]]
    for (param, grad, state), options in wanted:
        text = ",".join(f"option.{k}={str(v).lower()}" for k, v in options.items())
        spec = f"param={param},grad={grad},state={state},{text}"
        variants.append(f"--variant={spec}")
        for given in hypers:
            prefix = f"{len(cases)}/"
            arrays[prefix + "param"] = elements(param, len(cases))
            arrays[prefix + "grad"] = elements(grad, 1000 + len(cases))
            case = {"input": str(package), "prefix": prefix, "options": options, "hypers": given}
            cases.append(json.dumps(case | {"state": state, "steps": 2}, ensure_ascii=False))
    stepc(definition, "-o", package, *variants)
    np.savez(folder / "in.npz", **arrays)
    run = subprocess.run(
        [BIN / "stepc-run", "--batch=-", f"--tensors={folder / 'in.npz'}", "--compare"],
        input="\n".join(cases), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr + run.stdout
    assert f"{len(cases)} cases: no difference" in run.stdout


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("definition", ZOO, ids=lambda path: path.stem)
def test_zoo(definition, tmp_path):
    check_package(definition, tmp_path)


@pytest.mark.parametrize("name", ODD)
def test_odd_definitions(name, tmp_path):
    definition = tmp_path / f"{name}.mlir"
    definition.write_text(odd_text(name), encoding="utf-8")
    check_package(definition, tmp_path)
