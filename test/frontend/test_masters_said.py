# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who comes from DeepSpeed's engine or ColossalAI's plugins, which keep float32 masters, is told
once that parameters of 16 bits have none here, and by which argument they would."""

import copy
import pickle
import warnings

import pytest
import stepc.torch
import torch
from stepc.torch import apex, came, colossal, deepspeed, hf

KINDS = {
    **{name: getattr(colossal, name) for name in (
        "Adafactor", "CAME", "CPUAdam", "DistGaloreAwamW", "DistributedAdaFactor",
        "DistributedCAME", "DistributedLamb", "FusedAdam", "FusedLAMB", "HybridAdam", "Lamb",
    )},
    **{f"deepspeed.{name}": getattr(deepspeed, name) for name in (
        "DeepSpeedCPUAdam", "FusedAdam", "FusedLamb",
    )},
}  # fmt: skip
MASTERS = "without the float32 masters that"


def make(kind, params, **more):
    """With a learning rate, but for Adafactor, which has one of its own."""
    rate = {} if issubclass(kind, hf.Adafactor) else {"lr": 1e-2}
    return kind(params, **rate, **more)


def params_of(*dtypes):
    torch.manual_seed(0)
    made = [torch.nn.Parameter(torch.randn(3, 4).to(dtype)) for dtype in dtypes]
    return [(f"layer{number}.weight", param) for number, param in enumerate(made)]


def said(optimizer, steps=2):
    """What it warns of, of masters, in some steps."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(steps):
            for group in optimizer.param_groups:
                for param in group["params"]:
                    param.grad = torch.ones_like(param)
            optimizer.step()
    return [own for own in found if MASTERS in str(own.message)]


@pytest.mark.parametrize("name", KINDS)
def test_it_is_said_once_for_each_optimizer(name):
    kind = KINDS[name]
    keeper = "DeepSpeed's engine" if "deepspeed" in name else "ColossalAI's plugin"
    for _ in range(2):
        optimizer = make(kind, params_of(torch.float32, torch.bfloat16, torch.bfloat16))
        (warning,) = said(optimizer)
        assert warning.category is RuntimeWarning and warning.filename == __file__
        assert str(warning.message) == (
            "stepc: parameter 'layer1.weight' (torch.bfloat16) and 1 other are stepped by "
            f"{kind.__name__} without the float32 masters that {keeper} keeps beside parameters "
            "of 16 bits; give master='remainder', which takes 2 bytes a parameter, or master='f32'"
        )
        assert said(optimizer) == []


@pytest.mark.parametrize("name", ["CAME", "HybridAdam", "deepspeed.FusedLamb"])
def test_it_is_not_said_where_masters_are_kept_or_not_needed(name):
    kind = KINDS[name]
    for dtypes, more in (
        ([torch.float32, torch.float64], {}),
        ([torch.bfloat16], {"master": "f32"}),
        ([torch.bfloat16, torch.float32], {"master": "remainder"}),
        ([torch.float16], {"master": "f32"}),
        ([torch.bfloat16], {"rounding": "stochastic"}),
        ([torch.bfloat16], {"master": None}),
    ):
        assert said(make(kind, params_of(*dtypes), **more)) == []


@pytest.mark.parametrize("name", KINDS)
def test_it_is_not_said_of_frozen_parameters(name):
    """As those below adapters, which no step changes; of the others it is."""
    params = params_of(torch.bfloat16, torch.float32, torch.bfloat16)
    for _, param in params[::2]:
        param.requires_grad_(False)
    trained = params[1][1]
    for count in (0, 1):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            optimizer = make(KINDS[name], params)
            trained.grad = torch.ones_like(trained)
            optimizer.step()
        words = [str(own.message) for own in found if MASTERS in str(own.message)]
        assert len(words) == count
        assert all("parameter 'layer2.weight' (torch.bfloat16) is stepped" in own for own in words)
        params[2][1].requires_grad_(True)


@pytest.mark.parametrize("plugin", ["LowLevelZeroPlugin", "GeminiPlugin"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_plugin_that_declines_masters_has_said_it(plugin, precision):
    given = colossal.configure(plugin, precision=precision, master_weights=False)
    given.pop("loss_scale", None)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    for kind in (colossal.HybridAdam, colossal.DistributedLamb, colossal.CAME):
        assert said(make(kind, params_of(dtype), **given)) == []


def test_the_argument_fits_the_dtype():
    """A remainder is for bfloat16 alone; what is advised works."""
    for dtypes, first in (
        ([torch.float16], "(torch.float16) is"),
        ([torch.bfloat16, torch.float16, torch.float16], "(torch.bfloat16) and 2 others are"),
    ):
        named = params_of(*dtypes)
        (warning,) = said(colossal.HybridAdam([param for _, param in named], lr=1e-2))
        words = str(warning.message)
        assert f"parameter 0 of group 0 {first} stepped" in words
        assert words.endswith("; give master='f32'")
        assert said(colossal.HybridAdam(named, lr=1e-2, master="f32")) == []


def test_copies_do_not_say_it_again():
    optimizer = colossal.HybridAdam(params_of(torch.bfloat16), lr=1e-2)
    assert len(said(optimizer)) == 1
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert said(other) == []


def test_it_is_said_when_a_step_is_compiled_ahead():
    optimizer = colossal.Lamb(params_of(torch.bfloat16), lr=1e-2)
    with pytest.warns(RuntimeWarning, match=MASTERS):
        optimizer.precompile()
    assert said(optimizer) == []


def test_others_keep_none_in_their_libraries():
    for kind in (hf.Adafactor, came.CAME, apex.FusedLAMB, stepc.torch.AdamW):
        assert said(make(kind, params_of(torch.bfloat16))) == []


def test_a_plugin_that_has_told_of_ranks_decides():
    """``master_weights=False`` of ColossalAI's leaves parameters of 16 bits in the groups."""
    optimizer = colossal.DistributedLamb(params_of(torch.bfloat16), lr=1e-2)
    optimizer.setup_distributed()
    assert said(optimizer) == []


@pytest.mark.parametrize("block", [
    {"bf16": {"enabled": True}},
    {"fp16": {"enabled": True}},
    {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
     "zero_optimization": {"stage": 1}},
])  # fmt: skip
def test_a_configuration_has_said_it(block):
    config = {
        "train_batch_size": 1, "gradient_clipping": 0.0,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2}}, **block,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        setup = deepspeed.from_config(config, torch.nn.Linear(4, 3))
    assert type(setup.optimizer) is deepspeed.FusedAdam
    assert said(setup.optimizer) == []
    assert not any(p.dtype is torch.float32 for p in setup.optimizer.param_groups[0]["params"])
