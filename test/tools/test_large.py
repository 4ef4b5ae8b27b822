# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Large rules with values that many operations share: time and memory grow with
their length, not by its square, and not with the number of ways through them.

`STEPC_LARGE=1` takes 10 000 operations and every option; without, 2 000.
"""

import ctypes
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("STEPC_BIN", ROOT / "build" / "bin"))
FULL = "STEPC_LARGE" in os.environ
COUNT = 10000 if FULL else 2000
MEMORY = 1 << 30  # resident, of a compilation
SECONDS = 300  # of a processor, with others beside: what took seconds took hours

OPTIONS = {
    "plain": [],
    "reproducible": ["--reproducible"],
    "fsdp2": ["--layout=fsdp2"],
    "cuda": ["--target=sm_90", "--ptxas="],
    "exclusive": ["--exclusive-writes"],
    "zero1": ["--layout=zero1", "--reproducible"],
    "masters": ["--param=bf16", "--master=f32"],
}


def definition(arguments, body, before=""):
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f'step.optimizer @x {{\n  %lr = step.hyper "lr" = 0.1\n{before}'
        f"  step.rule @r(%p: param[n, m], %g: grad[n, m]{arguments}) {{\n{lines}\n  }}\n}}\n"
    )


def doubled(count):
    """Sums of a value and itself: 2^count ways from the last to the first."""
    body = ["%a0 = step.abs %g : [n, m]"]
    body += [f"%a{j + 1} = step.add %a{j}, %a{j} : [n, m]" for j in range(count)]
    body += [f"%s = step.sum %a{count} over [m] : [n, m]", "%u = step.div %g, %s : [n, m], [n, 1]"]
    body += ["%p1 = step.sub %p, %u : [n, m]", "step.return %p1 : [n, m]"]
    return definition("", body)


def shared(count):
    """Operations on values near before them, and some far."""
    rng = random.Random(7)
    names, body = ["%g", "%p"], []
    for j in range(count):
        op = rng.choice(["add", "mul", "sub", "maximum", "minimum"])
        near = names[-1 - min(len(names) - 1, int(rng.expovariate(0.5)))]
        far = rng.choice(names) if rng.random() < 0.1 else names[-1]
        body.append(f"%v{j} = step.{op} {near}, {far} : [n, m]")
        names.append(f"%v{j}")
    body += [f"%a = step.abs {names[-1]} : [n, m]", "%s = step.sum %a over [m] : [n, m]"]
    body += [f"%u = step.div {names[-1]}, %s : [n, m], [n, 1]"]
    body += ["%p1 = step.sub %p, %u : [n, m]", "step.return %p1 : [n, m]"]
    return definition("", body)


def powers(count):
    body = [f"%v{j + 1} = step.pow %v{j}, %lr" for j in range(count)]
    body = ["%v0 = step.constant 2.0", *body, f"%u = step.mul %g, %v{count} : [n, m], f64"]
    body += ["%p1 = step.sub %p, %u : [n, m]", "step.return %p1 : [n, m]"]
    return definition("", body)


def states(count):
    arguments = "".join(f', %s{j}: state "s{j}"[n, m]' for j in range(count))
    body = ["%v0 = step.add %s0, %g : [n, m]"]
    body += [f"%v{j} = step.add %s{j}, %v{j - 1} : [n, m]" for j in range(1, count)]
    returned = ", ".join(f"%v{j}" for j in range(count))
    types = ", ".join(["[n, m]"] * (count + 1))
    body += [f"%p1 = step.sub %p, %v{count - 1} : [n, m]"]
    body += [f"step.return %p1, {returned} : {types}"]
    return definition(arguments, body)


# A process of its own starts the compiler: one that this one forks counts what this one has.
MEASURED = """
import resource, subprocess, sys
for limit, most in zip((resource.RLIMIT_CPU, resource.RLIMIT_AS), map(int, sys.argv[1:3])):
    resource.setrlimit(limit, (most, most))
code = subprocess.call(sys.argv[3:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def compile_within(tmp_path, text, *options):
    """Compiles within the memory and the time; the package."""
    source, package = tmp_path / "large.mlir", tmp_path / "large.stepc"
    source.write_text(text)
    # Beside what is resident there are libraries, and the arenas of threads.
    limits = [str(SECONDS), str(4 * MEMORY)]
    command = [BIN / "stepc", source, "-o", package, *options]
    run = subprocess.run(
        [sys.executable, "-I", "-c", MEASURED, *limits, *command], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 1024 < MEMORY
    return package


@pytest.mark.parametrize("options", OPTIONS if FULL else list(OPTIONS)[:4])
@pytest.mark.parametrize("make", [doubled, shared])
def test_shared_values(tmp_path, make, options):
    compile_within(tmp_path, make(COUNT), *OPTIONS[options])


@pytest.mark.parametrize("options", ["plain", "cuda"])
def test_powers_are_in_a_package_once(tmp_path, options):
    compile_within(tmp_path, powers(640), *OPTIONS[options])


def test_many_states(tmp_path):
    compile_within(tmp_path, states(600 if FULL else 120))


def chain(count):
    body = ["%v0 = step.neg %g : [n, m]"]
    body += [f"%v{j + 1} = step.add %v{j}, %p : [n, m]" for j in range(count)]
    return definition("", [*body, f"step.return %v{count} : [n, m]"])


@pytest.mark.parametrize("options", ["plain", "reproducible", "fsdp2", "exclusive"])
def test_no_stack_is_needed_for_a_chain(tmp_path, options):
    """The least stack with which a short rule compiles is enough for a long one."""
    source = tmp_path / "chain.mlir"
    source.write_text(chain(20000))

    def limit():
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))

    command = [BIN / "stepc", source, "--compile-to=schedule", *OPTIONS[options]]
    run = subprocess.run([*command, "-o", "/dev/null"], preexec_fn=limit, capture_output=True)
    assert run.returncode == 0, run.stderr


NAMES = ["sgd-1", "\u00e9", " ", "x@y", ".L", "1st", "_", "%"]


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_characters(tmp_path, name, target):
    """Functions have names that object files and PTX take."""
    text = chain(1).replace("@x", f'@"{name}"').replace("@r", f'@"{name}"')
    load(compile_within(tmp_path, text, f"--target={target}", "--ptxas="))


def test_many_names(tmp_path):
    count = 20000
    names = "".join(f'  %h{j} = step.hyper "h{j}" = 0.5\n' for j in range(count))
    names += "".join(f'  %o{j} = step.option "o{j}" = false\n' for j in range(1100))
    body = ["%u = step.select %o7, %p, %g : [n, m]", "step.return %u : [n, m]"]
    load(compile_within(tmp_path, definition("", body, names)))


def load(package):
    """The runtime takes the package."""
    default = ROOT / "build" / "lib" / "libstepc_runtime.so"
    library = ctypes.CDLL(os.environ.get("STEPC_RUNTIME_LIBRARY", default))
    library.stepcLastErrorMessage.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    status = library.stepcPackageLoad(os.fsencode(package), ctypes.byref(handle))
    assert status == 0, library.stepcLastErrorMessage()
    library.stepcPackageDestroy(handle)
