# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The zoo in the interpreter, against numpy to the bit and against torch."""

import itertools

import formulas
import numpy as np
import oracle
import pytest
import torch
import torch_formulas
from oracle import ZOO, assert_same, special_values, store

FORMULAS = formulas.FORMULAS | torch_formulas.FORMULAS
HYPERS = formulas.HYPERS | torch_formulas.HYPERS
OPTIONS = formulas.OPTIONS | torch_formulas.OPTIONS
NEUTRAL = {"sgd": [{}, {"momentum": 0.0}, {"weight_decay": 0.0}, {"dampening": 0.0}]}
NEUTRAL["sophia"] = [{}, {"refresh": 0.0}]
NEUTRAL |= torch_formulas.NEUTRAL
TORCH = {
    "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "adam": torch.optim.Adam,
    "radam": torch.optim.RAdam, "adamax": torch.optim.Adamax, "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta, "rmsprop": torch.optim.RMSprop,
    "rprop": torch.optim.Rprop,
}  # fmt: skip


def state_names(name, *settings):
    own = formulas if name in formulas.FORMULAS else torch_formulas
    return own.state_names(name, *settings)


# Storage types of parameter, gradient and states.
STORAGES = [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("bf16", "bf16", "bf16"),
            ("f32", "bf16", "bf16"), ("f64", "f64", "f64")]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def combinations(names):
    """Each way to set some options."""
    for values in itertools.product([False, True], repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def make_arrays(name, hypers, options, storages, size=300):
    """Random arrays; the gradient has special values, too."""
    rng = np.random.default_rng(size)
    param, grad, state = storages
    values = rng.standard_normal(size)
    specials = special_values(np.float32)
    values[: specials.size] = specials
    arrays = {"param": store(rng.standard_normal(size), param), "grad": store(values, grad)}
    for state_name in state_names(name, hypers, options):
        random = rng.standard_normal(size)
        squares = state_name.endswith(("_sq", "_inf", "_size", "sum", "square_avg", "_delta"))
        arrays[state_name] = store(np.abs(random) if squares else random, state)
    return arrays


@pytest.mark.parametrize("storages", STORAGES, ids="-".join)
@pytest.mark.parametrize("name", FORMULAS)
def test_one_step_has_the_bits_of_numpy(name, storages):
    batch, expected = oracle.Batch(), []
    for options in combinations(OPTIONS[name]):
        for change in NEUTRAL.get(name, [{}]):
            hypers = {**HYPERS[name], **change}
            arrays = make_arrays(name, hypers, options, storages)
            for count, fresh in [(1, True), (2, False), (77, False), (100000, True)]:
                batch.add(
                    ZOO / f"{name}.mlir", arrays,
                    hypers=hypers, options=options, count=count, fresh=fresh,
                )  # fmt: skip
                expected.append(FORMULAS[name](arrays, hypers, options, count, fresh))
    for index, (actual, wanted) in enumerate(zip(batch.run(), expected, strict=True)):
        assert actual.keys() == wanted.keys()
        for array in wanted:
            assert_same(actual[array], wanted[array], f"case {index}, {array}")


@pytest.mark.parametrize("name", FORMULAS)
def test_ten_steps_have_the_bits_of_numpy(name):
    hypers, options = HYPERS[name], dict.fromkeys(OPTIONS[name], True)
    arrays = make_arrays(name, hypers, options, ("bf16", "f32", "f32"))
    result = oracle.interpret(
        ZOO / f"{name}.mlir", arrays, hypers=hypers, options=options, steps=10, fresh=True
    )
    for step in range(10):
        arrays.update(FORMULAS[name](arrays, hypers, options, step + 1, step == 0))
    for array in result:
        assert_same(result[array], arrays[array], array)


def make_torch(name, param, hypers, options):
    """torch's optimizer with our names for its arguments."""
    arguments = torch_formulas.torch_arguments(name, hypers, options)
    return TORCH[name]([param], foreach=False, **arguments)


def torch_cases():
    for name in TORCH:
        if name != "sgd":
            for options in combinations(OPTIONS[name]):
                for change in NEUTRAL.get(name, [{}]):
                    yield name, {**HYPERS[name], **change}, options
    for change in [{}, {"momentum": 0.0}, {"weight_decay": 0.0}]:
        for options in combinations(OPTIONS["sgd"]):
            hypers = {**HYPERS["sgd"], **change}
            if options["nesterov"]:
                if hypers["momentum"] == 0:
                    continue
                hypers["dampening"] = 0.0  # torch takes no other
            yield "sgd", hypers, options


@pytest.mark.parametrize(("name", "hypers", "options"), list(torch_cases()))
def test_torch_in_f64(name, hypers, options):
    rng = np.random.default_rng(11)
    param = torch.nn.Parameter(torch.from_numpy(rng.standard_normal(200)))
    optimizer = make_torch(name, param, hypers, options)
    names = state_names(name, hypers, options)

    def snapshot():
        states = {n: optimizer.state[param].get(n) for n in names}
        tensors = {"param": param.detach(), **{n: s for n, s in states.items() if s is not None}}
        return {n: tensor.numpy().copy() for n, tensor in tensors.items()}

    # Each of torch's steps, once more from where torch was before it.
    batch, expected = oracle.Batch(), []
    for step in range(1, 13):
        grad = rng.standard_normal(200)
        param.grad = torch.from_numpy(grad.copy())
        before = {**snapshot(), "grad": grad}
        optimizer.step()
        for mode in ["exact", "f64"]:
            batch.add(
                ZOO / f"{name}.mlir", before, hypers=hypers, options=options, count=step,
                fresh=step == 1, mode=mode,
            )  # fmt: skip
            expected.append(snapshot())
    for actual, wanted in zip(batch.run(), expected, strict=True):
        assert actual.keys() == wanted.keys()
        for array in wanted:
            np.testing.assert_allclose(actual[array], wanted[array], rtol=1e-14, atol=1e-15)


def test_f64_mode_is_near_the_exact_mode_in_f32():
    hypers = HYPERS["adamw"]
    rng = np.random.default_rng(12)
    arrays = {"param": rng.standard_normal(100).astype("f4"), "grad": np.ones(100, "f4")}
    exact = oracle.interpret(ZOO / "adamw.mlir", arrays, hypers=hypers, steps=20)
    wide = oracle.interpret(ZOO / "adamw.mlir", arrays, hypers=hypers, steps=20, mode="f64")
    assert wide["param"].dtype == np.float64
    np.testing.assert_allclose(exact["param"], wide["param"], rtol=1e-5)
    assert (exact["param"] != wide["param"]).any()
