# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps have the interpreter's bits however they are run: threads,
chunks, subsets, and whatever the host has done to its floating-point mode."""

import contextlib
import ctypes
import ctypes.util

import numpy as np
import pytest
from driver import STORAGES, make_tensors
from formulas import HYPERS, OPTIONS

SHAPES = [(n,) for n in (0, 1, 5, 64, 130, 3001)] + [(17, 3)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 7, 64, 0])
@pytest.mark.parametrize("name", HYPERS)
def test_threads_and_chunks(name, chunk, threads, packages, checker):
    options = dict.fromkeys(OPTIONS[name], False)
    for storages in STORAGES[:3]:
        tensors = make_tensors(name, storages, HYPERS[name], options, SHAPES)
        tensors.bind(packages(name, storages[2]), threads=threads, chunk=chunk)
        tensors.step(checker)
        tensors.new_gradients(1)
        tensors.step(checker)


@pytest.mark.parametrize("parts", [1, 2, 3, len(SHAPES)])
def test_subsets(parts, packages, checker):
    def take(plan):
        ids = np.random.default_rng(parts).permutation(len(SHAPES))
        plan.step_in_parts([part.tolist() for part in np.array_split(ids, parts)])

    for name in HYPERS:
        options = dict.fromkeys(OPTIONS[name], False)
        tensors = make_tensors(name, STORAGES[0], HYPERS[name], options, SHAPES)
        tensors.bind(packages(name, "f32"), fresh=True, threads=2, chunk=64)
        for seed in range(3):
            tensors.new_gradients(seed)
            # The second step is a whole one, between two in parts.
            tensors.step(checker, None if seed == 1 else take)


# --- The host's floating-point mode -------------------------------------------

libm = ctypes.CDLL(ctypes.util.find_library("m"))
MXCSR_AT = 28  # in fenv_t on x86-64, which has 32 bytes
MODES = {"nearest": 0x0000, "downward": 0x2000, "upward": 0x4000, "toward zero": 0x6000,
         "flush results": 0x8000, "flush operands": 0x0040, "flush both": 0x8040,
         "flush both upward": 0xC040}  # fmt: skip


def read_mxcsr():
    environment = ctypes.create_string_buffer(32)
    libm.fegetenv(environment)
    return environment, int.from_bytes(environment.raw[MXCSR_AT:], "little")


def write_mxcsr(environment, value):
    changed = environment.raw[:MXCSR_AT] + value.to_bytes(4, "little")
    libm.fesetenv(ctypes.create_string_buffer(changed, 32))


@contextlib.contextmanager
def host_mode(bits):
    """The calling thread's mode; what is inside must leave its control bits alone."""
    environment, before = read_mxcsr()
    inside = (before & 0x1FBF) | bits
    write_mxcsr(environment, inside)
    try:
        yield
        _, after = read_mxcsr()
    finally:
        write_mxcsr(environment, before)
    assert after & 0xFFC0 == inside & 0xFFC0, "the step changed the host's mode"


def test_host_mode_changes_arithmetic():
    # The tests below would show nothing otherwise.
    tiny, third = np.float32(1e-40), np.float32(3)
    with host_mode(MODES["flush both"]):
        flushed = tiny * np.float32(0.5)
    with host_mode(MODES["upward"]):
        up = np.float32(1) / third
    with host_mode(MODES["downward"]):
        down = np.float32(1) / third
    assert flushed == 0
    assert down < up


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HYPERS)
def test_host_modes(name, mode, packages, checker):
    options = dict.fromkeys(OPTIONS[name], False)
    for storages in STORAGES[:3]:
        tensors = make_tensors(name, storages, HYPERS[name], options, SHAPES, seed=7)
        package = packages(name, storages[2])
        # Also what binding computes must not depend on the mode.
        with host_mode(MODES[mode]):
            tensors.bind(package, count=3, threads=2, chunk=64)
        tensors.step(checker, mode=host_mode(MODES[mode]))
        tensors.step(checker)
        tensors.step(checker, mode=host_mode(MODES[mode]))
