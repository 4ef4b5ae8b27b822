# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``zero=Zero(...)``, and its fields one by one as they were written before."""

import dataclasses
import warnings

import pytest
import stepc.torch as st
import torch
import torch.distributed as dist
from stepc.torch.ranks.zero import settings as _settings


@pytest.fixture
def alone(tmp_path):
    """A process group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def made(**keywords):
    return st.AdamW([torch.nn.Parameter(torch.ones(4))], **keywords)


EVERYTHING = {
    "gradients": "local",
    "bucket_bytes": 4096,
    "reduce_bucket_bytes": 2048,
    "gather_bucket_bytes": 1024,
    "reduce_dtype": torch.float32,
    "predivide": True,
    "overlap": False,
    "flatten_parameters": True,
}


@pytest.mark.parametrize(
    "stage, fields", [(1, {"gradients": "reduced"}), (1, EVERYTHING), (2, {"gradients": "local"})]
)
def test_it_says_what_the_arguments_said(alone, stage, fields):
    new = made(zero=st.Zero(stage, **fields))
    old = made(zero=stage, **fields)
    assert str(new._zero) == str(old._zero)
    assert new._reduce_dtype == old._reduce_dtype == fields.get("reduce_dtype")


def test_every_field_is_an_argument_of_before():
    names = {field.name for field in dataclasses.fields(st.Zero)} - {"stage"}
    assert names == set(_settings.ARGUMENTS)
    assert set(EVERYTHING) == names - {"process_group"}


def test_the_second_stage_has_one_kind_of_gradients(alone):
    assert made(zero=st.Zero(2))._zero.local_gradients
    with pytest.raises(ValueError, match="zero=2 reduces gradients itself"):
        made(zero=st.Zero(2, gradients="reduced"))


def test_no_stage_is_no_zero():
    assert made(zero=st.Zero(0))._zero is None
    with pytest.raises(ValueError, match="gradients is of no use without zero=Zero"):
        made(zero=st.Zero(0, gradients="local"))


@pytest.mark.parametrize("name", sorted(_settings.ARGUMENTS))
def test_what_is_given_twice_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} is given beside zero=Zero\(\.\.\.\)"):
        made(zero=st.Zero(1, gradients="local"), **{name: EVERYTHING.get(name, object())})


def test_the_old_way_says_once_what_the_new_one_is(alone, monkeypatch):
    monkeypatch.setattr(_settings, "_told_of_arguments", False)
    words = r"now written zero=stepc\.torch\.Zero\(1, gradients='local', overlap=False\)"
    with pytest.warns(FutureWarning, match=words) as found:
        made(zero=1, gradients="local", overlap=False)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(zero=1, gradients="local")
        made(zero=st.Zero(1, gradients="local"))


def test_stages_that_are_none(alone):
    for stage in (3, "1", True):
        with pytest.raises(ValueError, match=rf"zero is {stage!r}, expected stepc.torch.Zero\("):
            made(zero=st.Zero(stage, gradients="local"))
        with pytest.raises(ValueError, match=rf"zero is {stage!r}, expected stepc.torch.Zero\("):
            made(zero=stage, gradients="local")


def test_classes_of_users_hand_it_on(alone):
    class Mine(st.AdamW):
        def __init__(self, params, **keywords):
            super().__init__(params, lr=0.5, **keywords)

    params, zero = [torch.nn.Parameter(torch.ones(4))], st.Zero(1, "local", overlap=False)
    for optimizer in (
        Mine(params, zero=zero),
        st.Optimizer(params, "frontend/optimizers/sgd.mlir", zero=zero),
    ):
        assert str(optimizer._zero).endswith("overlap=False")


OF_OTHERS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name)
    for module in (st.apex, st.came, st.colossal, st.deepspeed, st.hf)
    for name in module.__all__
    if isinstance(getattr(module, name), type)
    and issubclass(getattr(module, name), torch.optim.Optimizer)
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_classes_of_other_libraries_with_zero_2(alone, name):
    """Stage 2 makes its buckets, which need all that the constructor is given, in the
    constructor: the step is that without it."""
    params = [[torch.nn.Parameter(torch.ones(4, 8)) for _ in range(2)] for _ in range(2)]
    lr = {"lr": 1e-2} if name.endswith("CAME") else {}
    for own, more in zip(params, ({}, {"zero": st.Zero(2)}), strict=True):
        optimizer = OF_OTHERS[name](own, **lr, **more)
        own[0].square().sum().backward()
        optimizer.step()
    assert not params[0][0].equal(torch.ones(4, 8))
    assert all(a.equal(b) for a, b in zip(*params, strict=True))
