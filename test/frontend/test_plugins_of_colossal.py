# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``colossal.configure``: what arguments of ColossalAI's plugins become. Their names and defaults
are in test_original_arguments.py, ZeRO on ranks in test/distributed/colossal_cases.py."""

import re
import warnings

import pytest
import stepc.torch
import torch
from stepc.torch.colossal import DynamicGradScaler, HybridAdam, configure
from stepc.torch.colossal_plugins import PLUGINS

OF_SCALES = [plugin for plugin in PLUGINS if plugin != "TorchDDPPlugin"]


@pytest.mark.parametrize("plugin", OF_SCALES)
def test_defaults_are_the_plugins(plugin):
    """float16 with masters and the plugin's scale, no clipping."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = configure(plugin)
    assert set(made) == {"loss_scale", "master"} and made["master"] == "f32"
    assert vars(made["loss_scale"]) == vars(DynamicGradScaler.of_plugin(plugin))


def test_what_arguments_become():
    made = configure("GeminiPlugin", precision="bf16", max_norm=0.5)
    assert made["master"] == "remainder" and made["clip"].max_norm == 0.5
    assert set(made) == {"master", "clip"}
    assert configure("LowLevelZeroPlugin", precision="fp32", stage=2) == {}  # one process
    declined = configure("LowLevelZeroPlugin", precision="bf16", master_weights=False)
    assert declined == {"master": None}
    assert configure("TorchDDPPlugin") == {}
    scale = configure("HybridParallelPlugin", tp_size=2, pp_size=2, initial_scale=2.0**10,
                      min_scale=4, hysteresis=3, layouts=())["loss_scale"]  # fmt: skip
    assert (scale.initial_scale, scale.min_scale, scale.hysteresis) == (1024.0, 4, 3)


@pytest.mark.parametrize(("plugin", "given", "first"), [
    ("HybridParallelPlugin", {"tp_size": 2, "pp_size": 1, "max_norm": 1.0}, "max_norm is 1.0"),
    ("HybridParallelPlugin", {"tp_size": 2, "zero_stage": 1}, "zero_stage is 1"),
    ("HybridParallelPlugin", {"pp_size": 4, "zero_stage": 2}, "zero_stage is 2"),
    ("HybridParallelPlugin", {"sp_size": 2, "max_norm": 1}, "max_norm is 1"),
    ("MoeHybridParallelPlugin", {"ep_size": 2, "zero_stage": 1}, "zero_stage is 1"),
    ("GeminiPlugin", {"tp_size": 2, "max_norm": 0.5}, "max_norm is 0.5"),
    ("HybridParallelPlugin", {"tp_size": 2, "precision": "fp16"}, "precision is 'fp16'"),
])  # fmt: skip
def test_what_is_of_all_ranks_needs_their_layouts(plugin, given, first):
    """Without, each rank would take the norm, and overflows, of what it has alone."""
    given = {"precision": "bf16", **given}
    size = next(name for name in given if name.endswith("_size"))
    words = (
        f"{size} is {given[size]} and {first}: give layouts=, which say what ranks have, as the "
        "norm, overflows and statistics are of all of them; layouts=() says that parameters are "
        "DTensors"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        configure(plugin, **given)
    made = configure(plugin, **given, layouts=())  # DTensors
    assert "layouts" not in made
    rules = ((".*", None),)
    assert configure(plugin, **given, layouts=list(rules))["layouts"] == rules
    # What is of single elements needs none.
    assert configure(plugin, **{size: 2, "precision": "bf16"}) == {"master": "remainder"}


def test_a_step_is_as_it_is_written_by_hand():
    steps = []
    for more in (
        configure("LowLevelZeroPlugin", precision="bf16", max_norm=0.5),
        {"master": "remainder", "clip": stepc.torch.ClipByNorm(0.5)},
    ):
        torch.manual_seed(0)
        net = torch.nn.Linear(5, 3).bfloat16()
        optimizer = HybridAdam(net.parameters(), lr=1e-2, **more)
        for _ in range(3):
            net(torch.ones(2, 5, dtype=torch.bfloat16)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert optimizer.last_step.grad_norm > 0.5
        steps.append([p.detach().clone() for p in net.parameters()])
    assert all(map(torch.equal, *steps))


def test_the_plugins_own_are_named_once_where_they_are_not_the_default():
    given = {"cast_inputs": False, "verbose": True, "overlap_allgather": False, "stage": 1}
    with pytest.warns(RuntimeWarning) as found:
        configure("LowLevelZeroPlugin", **given)
    assert [str(own.message) for own in found] == [
        "stepc: these arguments are for LowLevelZeroPlugin itself, and what they say is yours to "
        "do: cast_inputs, verbose"
    ]
    assert found[0].filename == __file__


@pytest.mark.parametrize(("plugin", "given", "error", "words"), [
    ("ZeroPlugin", {}, ValueError, "plugin is 'ZeroPlugin', expected TorchDDPPlugin, LowLevelZ"),
    ("GeminiPlugin", {"precison": "bf16"}, TypeError,
     "GeminiPlugin has no argument 'precison', the nearest is 'precision'"),
    ("TorchDDPPlugin", {"xyz": 1}, TypeError, "TorchDDPPlugin has no argument 'xyz'$"),
    ("GeminiPlugin", {"precision": "fp8"}, ValueError,
     "precision is 'fp8', expected 'fp16', 'bf16', 'fp32'"),
    ("LowLevelZeroPlugin", {"stage": 3}, ValueError,
     "stage is 3, expected 1 to 2: 3 is torch's fully_shard"),
    ("LowLevelZeroPlugin", {"stage": True}, ValueError, "stage is True, expected 1 to 2"),
    ("HybridParallelPlugin", {"zero_stage": -1}, ValueError, "zero_stage is -1, expected 0 to 2"),
    ("LowLevelZeroPlugin", {"norm_type": 1.0}, ValueError, "norm_type is 1.0, expected 2.0"),
    ("LowLevelZeroPlugin", {"cpu_offload": True}, ValueError, "cpu_offload is True, expected"),
    ("GeminiPlugin", {"offload_optim_frac": 1.0}, ValueError,
     r"offload_optim_frac is 1.0, expected 0.0: use fully_shard\(offload_policy"),
    ("TorchDDPPlugin", {"fp8_communication": True}, ValueError, "other numbers would cross ranks"),
    ("GeminiPlugin", {"initial_scale": 2.0**40}, ValueError, "initial_scale is"),
    ("GeminiPlugin", {"max_norm": None}, ValueError, "^max_norm is None, expected a number$"),
    ("GeminiPlugin", {"tp_size": 2, "layouts": ["x"]}, TypeError, "layouts has 'x', expected a r"),
])  # fmt: skip
def test_refusals(plugin, given, error, words):
    with pytest.raises(error, match=words):
        configure(plugin, **given)
