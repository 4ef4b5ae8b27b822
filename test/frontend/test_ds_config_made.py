# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc.torch.deepspeed.from_config``: the optimizer, batches, and "auto"."""

import copy

import pytest
import stepc.torch as st
import torch
from ds_config_common import (
    PLAIN,
    model_of,
    optimizer,
    optimizer_of,
    quiet,
    refused,
    schedule,
)
from ds_configs import FILES, arguments
from stepc.torch.deepspeed import config as _config
from stepc.torch.deepspeed.reading import Said

# --- Optimizers and batches -----------------------------------------------------------------------

D = st.deepspeed
CLASSES = [
    ("Adam", {}, D.FusedAdam, {"weight_decay": 0.0, "eps": 1e-8}),
    ("aDaMw", {"weight_decay": 0.1}, D.FusedAdam, {"weight_decay": 0.1}),
    ("Adam", {"torch_adam": True}, st.AdamW, {"weight_decay": 0.01}),
    ("Adam", {"torch_adam": True, "adam_w_mode": False, "foreach": True}, st.Adam, {}),
    ("AdamW", {"torch_adam": True, "adam_w_mode": False}, st.AdamW, {}),
    ("Lamb", {"max_coeff": 0.3, "min_coeff": 0.01}, D.FusedLamb, {"max_coeff": 0.3}),
    ("Lion", {}, st.Lion, {"lr": 1e-3, "betas": (0.9, 0.999)}),
    ("Adagrad", {"eps": 1e-9}, st.Adagrad, {"eps": 1e-9, "lr": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, st.SGD, {"momentum": 0.9}),
    ("RMSprop", {"alpha": 0.9}, st.RMSprop, {"alpha": 0.9}),
    ("NAdam", {}, st.NAdam, {"lr": 2e-3}),
    ("Adafactor", {"eps": [None, 0.01]}, st.Adafactor, {"eps": (None, 0.01)}),
]


@pytest.mark.parametrize(("name", "params", "kind", "values"), CLASSES)
def test_classes(name, params, kind, values):
    made = optimizer_of(optimizer(name, **params))
    assert type(made) is kind
    assert {key: made.param_groups[0][key] for key in values} == values


@pytest.mark.parametrize(
    ("name", "given", "mode"),
    [("Adam", {}, True), ("Adam", {"adam_w_mode": False}, False),
     ("AdamW", {"adam_w_mode": False}, True)],
)  # fmt: skip
def test_adam_is_adamw_unless_it_says_so(name, given, mode):
    assert optimizer_of(optimizer(name, **given)).adam_w_mode == (1 if mode else 0)


def test_muon():
    """Matrices but embeddings and the head are Muon's; kernels have a group of their own."""
    model = model_of()
    model.conv = torch.nn.Conv2d(3, 4, 3)
    config = optimizer("Muon", lr=0.1, muon_lr=0.05, betas=[0.8, 0.9], weight_decay=0.1)
    made = quiet(config, model)[0].optimizer
    groups = [(g["use_muon"], g["lr"], g.get("view"), g["param_names"]) for g in made.param_groups]
    assert groups == [
        (True, 0.05, None, ["up.weight"]),
        (True, 0.05, "o i h w -> o (i h w)", ["conv.weight"]),
        (False, 0.1, None, ["embed.weight", "up.bias", "norm.weight", "norm.bias",
                            "lm_head.weight", "lm_head.bias", "conv.bias"]),
    ]  # fmt: skip
    assert made.param_groups[2]["betas"] == (0.8, 0.9)
    model.up.weight.use_muon = False
    made = quiet(optimizer("muon"), model)[0].optimizer
    assert made.param_groups[0]["param_names"] == ["conv.weight"]
    assert made.param_groups[1]["lr"] == 3e-4


def test_muon_with_an_l2_term_of_a_group():
    model = model_of()
    config = optimizer("Muon", adam_w_mode=False)
    groups = [{"params": list(model.parameters()), "weight_decay": 0.1}]
    refused(config, "False with a weight_decay", model, model_parameters=groups)
    assert quiet(config, model)[0].optimizer.param_groups[0]["weight_decay"] == 0


def test_muon_leaves_out_what_needs_no_gradient():
    """Its decay would change it, as that of a gradient of zeros."""
    model = model_of()
    model.up.requires_grad_(False)
    config = optimizer("Muon", weight_decay=0.1)
    made = quiet(config, model, model_parameters=model.named_parameters())[0].optimizer
    names = [name for group in made.param_groups for name in group["param_names"]]
    assert len(names) == 5 and not [name for name in names if name.startswith("up.")]
    refused(config, "no parameter needs a gradient, expected one", model.requires_grad_(False),
            model_parameters=list(model.parameters()))  # fmt: skip


def test_model_parameters():
    model = model_of()
    groups = [{"params": model.up.parameters(), "lr": 0.5}, {"params": model.norm.weight}]
    made = quiet(PLAIN, model, model_parameters=groups)[0].optimizer
    assert [(len(g["params"]), g["lr"]) for g in made.param_groups] == [(2, 0.5), (1, 0.01)]
    model.embed.requires_grad_(False)
    assert len(quiet(PLAIN, model)[0].optimizer.param_groups[0]["params"]) == 6


def test_a_learning_rate_that_is_a_tensor_is_that_of_the_schedule():
    """The trial of the schedule writes into another one."""
    for rate in (0.5, torch.tensor(0.5)):
        model = model_of()
        groups = [{"params": list(model.parameters()), "lr": rate}]
        config = schedule("WarmupCosineLR", total_num_steps=10, warmup_num_steps=2)
        assert quiet(config, model, model_parameters=groups)[0].lr_scheduler.org_lrs == [0.5]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [((12, 2, 3), (12, 2, 3)), ((12, 2, None), (12, 2, 3)), ((12, None, 3), (12, 2, 3)),
     ((None, 2, 3), (12, 2, 3)), ((4, None, None), (4, 2, 1)), ((None, 2, None), (4, 2, 1))],
)  # fmt: skip
def test_batches(given, wanted):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    said = Said({n: v for n, v in zip(names, given, strict=True) if v is not None})
    assert tuple(_config._batches(said, None, 2)[name] for name in names) == wanted


def test_gradient_clipping_is_1_where_the_file_has_none():
    config = {k: v for k, v in PLAIN.items() if k != "gradient_clipping"}
    setup, told = quiet(config, model_of())
    assert setup.optimizer.clip[0].max_norm == setup.gradient_clipping == 1.0
    assert told == [
        "stepc: of the DeepSpeed configuration gradient_clipping is absent: DeepSpeed's default of "
        "1.0 is taken"
    ]


# --- "auto" ---------------------------------------------------------------------------------------


def test_auto():
    setup, _ = quiet(FILES["ZeRO-2, auto"], model_of(hidden_size=8), arguments())
    group = setup.optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.99), 1e-7, 0.01)
    assert (setup.train_batch_size, setup.train_micro_batch_size_per_gpu) == (4, 2)
    assert setup.gradient_accumulation_steps == 2 and setup.optimizer.clip[0].max_norm == 0.5
    schedule = setup.lr_scheduler
    assert (schedule.warmup_num_steps, schedule.max_lrs, schedule.min_lrs) == (3, [3e-3], [0])
    assert setup.dtype == torch.float16 and setup.optimizer.loss_scale == 2.0**16


@pytest.mark.parametrize("name", ["ZeRO-2, auto", "ZeRO-2, by hand"])
def test_files_of_hugging_face(name):
    """On one process and its CPU nothing is to be moved. The file by hand has no batch."""
    same = {"learning_rate": 3e-5, "adam_beta1": 0.8, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
            "weight_decay": 3e-7, "warmup_steps": 500}  # fmt: skip
    given = arguments() if "auto" in name else arguments(**same)
    setup, told = quiet(FILES[name], model_of(hidden_size=8), given)
    assert type(setup.optimizer) is D.DeepSpeedCPUAdam and setup.zero_stage == 2
    assert len(told) == 1 and "zero_optimization.contiguous_gradients" in told[0]
    loss = setup.optimizer.param_groups[0]["params"][0].float().square().sum()
    setup.backward(loss)
    setup.step()
    assert setup.global_steps == 1


@pytest.mark.parametrize("name", ["ZeRO-3, auto", "ZeRO-3, by hand", "NVMe"])
def test_files_of_hugging_face_for_stage_3(name):
    """Of a plain model; test/distributed/ds_config_cases.py has them with fully_shard."""
    same = {"learning_rate": 3e-5, "adam_beta1": 0.8, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
            "weight_decay": 3e-7, "warmup_steps": 500}  # fmt: skip
    given = arguments(**same if "hand" in name else {})
    words = refused(FILES[name], "fully_shard", model_of(hidden_size=8), training_arguments=given)
    assert "'zero_optimization.stage' is 3" in words


def test_sizes_of_buckets_by_hidden_size():
    for config in ({"hidden_size": 8}, {"hidden_sizes": [4, 8]},
                   {"text_config": type("C", (), {"hidden_size": 8})}):  # fmt: skip
        file = copy.deepcopy(FILES["ZeRO-3, auto"])
        _config.resolve(file, arguments(), model_of(**config), None, 1)
        zero = file["zero_optimization"]
        assert zero["reduce_bucket_size"] == 64 and zero["stage3_prefetch_bucket_size"] == 57
        assert zero["stage3_param_persistence_threshold"] == 80
    refused(
        FILES["ZeRO-3, auto"], "neither `hidden_size` nor `hidden_sizes` entry.*_persistence_thr",
        training_arguments=arguments(),
    )  # fmt: skip


def test_contradictions_are_refused_as_the_trainer_does():
    config = {
        "train_batch_size": 8, "gradient_clipping": 1.0, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "eps": "auto"}},
        "scheduler": {"type": "WarmupDecayLR",
                      "params": {"total_num_steps": 30, "warmup_num_steps": "auto"}},
    }  # fmt: skip
    words = refused(config, "Please correct the following", training_arguments=arguments())
    assert words.splitlines()[1:] == [
        "- ds train_batch_size=8 vs hf train_batch_size (calculated)=4",
        "- ds gradient_clipping=1.0 vs hf max_grad_norm=0.5",
        "- ds optimizer.params.lr=0.001 vs hf learning_rate=0.003",
        "- ds bf16.enabled=True vs hf bf16|bf16_full_eval=False",
        "- ds scheduler.params.total_num_steps=30 vs hf num_training_steps (calculated)=20",
        "The easiest method is to set these DeepSpeed config values to 'auto'.",
    ]


def test_the_number_of_steps():
    config = schedule("WarmupDecayLR", total_num_steps="auto", warmup_num_steps="auto")
    same = {"learning_rate": 0.01, "max_grad_norm": 0.0, "fp16": False}
    open_end = arguments(**same, max_steps=-1)
    refused(config, "'scheduler.params.total_num_steps': \"auto\" needs the number of",
            training_arguments=open_end)  # fmt: skip
    made, _ = quiet(config, model_of(), open_end, num_training_steps=50)
    assert made.lr_scheduler.total_num_steps == 50 and made.lr_scheduler.warmup_num_steps == 3
    config = schedule("WarmupLR", warmup_num_steps="auto")
    assert quiet(config, model_of(), open_end)[0].lr_scheduler.warmup_num_steps == 3
    open_end.warmup_steps = 0  # as 1, which DeepSpeed's warm-up needs
    config["scheduler"]["params"]["warmup_num_steps"] = 1
    assert quiet(config, model_of(), open_end)[0].lr_scheduler.warmup_num_steps == 2
    config["scheduler"]["params"]["warmup_num_steps"] = "auto"
    open_end.warmup_steps = 0.1
    refused(config, "'scheduler.params.warmup_num_steps'", training_arguments=open_end)


def test_training_arguments_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    given = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=3,
        warmup_steps=0.1, max_steps=100, learning_rate=2e-3, use_cpu=True, bf16=True,
    )  # fmt: skip
    config = {
        "train_batch_size": "auto", "bf16": {"enabled": "auto"}, "gradient_clipping": "auto",
        "scheduler": {"type": "WarmupDecayLR", "params": {
            "total_num_steps": "auto", "warmup_num_steps": "auto", "warmup_max_lr": "auto"}},
    }  # fmt: skip
    setup, _ = quiet(config, model_of(), given)
    assert setup.train_batch_size == 6 and setup.dtype == torch.bfloat16
    assert setup.lr_scheduler.warmup_num_steps == 10 and setup.lr_scheduler.max_lrs == [2e-3] * 2
    # Without an optimizer in the file it is the Trainer's AdamW, with its two groups.
    assert type(setup.optimizer) is st.AdamW
    names = [(g["weight_decay"], g["param_names"]) for g in setup.optimizer.param_groups]
    assert names == [
        (0.0, ["embed.weight", "up.weight", "lm_head.weight"]),
        (0.0, ["up.bias", "norm.weight", "norm.bias", "lm_head.bias"]),
    ]
    given.optim = "adafactor"
    refused(config, "optim 'adafactor', expected 'adamw_torch'", training_arguments=given)
    given.optim = "adamw_torch_8bit"
    refused(config, "optim 'adamw_torch_8bit', expected", training_arguments=given)
    given.optim, given.optim_args = "adamw_torch_fused", "a=1"
    refused(config, "have optim_args 'a=1', expected none", training_arguments=given)
    given.optim_args = None
    assert type(quiet(config, model_of(), given)[0].optimizer) is st.AdamW


def test_for_the_trainer():
    """Which divides losses and clips by itself."""
    given = arguments(fp16=False, bf16=True)
    config = {**FILES["ZeRO-2, auto"], "bf16": {"enabled": "auto"}}
    setup, _ = quiet(config, model_of(hidden_size=8), given, for_trainer=True)
    assert setup.optimizer.clip == () and setup.optimizer.accumulation_steps == 1
    assert setup.gradient_clipping == 0.5 and setup.gradient_accumulation_steps == 2
    refused(FILES["ZeRO-2, auto"], "'fp16.enabled' is True, and the Trainer scales losses",
            model_of(hidden_size=8), training_arguments=arguments(), for_trainer=True)  # fmt: skip
