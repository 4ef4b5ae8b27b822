# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs from a DeepSpeed configuration are those that are written by hand, to the bit."""

import logging
import math

import pytest
import stepc.torch as st
import torch
from stepc import errors

STEPS = 8


def model_of():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def batches(dtype):
    made = torch.Generator().manual_seed(1)
    return [torch.randn(4, 8, generator=made).to(dtype) for _ in range(2 * STEPS)]


def loss_of(model, batch, times=1.0):
    return times * model(batch).float().square().mean()


def run(config, dtype, times=None):
    """The loop of the docstring of Setup: two passes to a step."""
    model = model_of()
    setup = st.deepspeed.from_config(config, model)
    rates = []
    for number, batch in enumerate(batches(dtype)):
        setup.backward(loss_of(model, batch, (times or {}).get(number // 2, 1.0)))
        if number % 2:
            rates.append(setup.optimizer.param_groups[0]["lr"])
            setup.step()
    return model, setup, rates


def same(a, b):
    return all(p.equal(q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


BASE = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.05,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"total_num_steps": 20, "warmup_max_lr": 0.01, "warmup_num_steps": 3},
    },
}


def rate(k):
    """WarmupDecayLR of BASE before step k + 1."""
    if k < 4:
        return 0.01 * math.log(k) / math.log(3) if k else 0.0
    return 0.01 * (20 - (k - 1)) / 17


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adamw(dtype):
    """Of bfloat16 with remainders, clipped, in a loop without Setup and without schedule."""
    narrow = dtype == torch.bfloat16
    config = {**BASE, "bf16": {"enabled": True}} if narrow else BASE
    model, setup, rates = run(config, dtype)
    twin = model_of().to(dtype)
    more = {"master": "remainder", "skip_nonfinite": True} if narrow else {}
    optimizer = st.deepspeed.FusedAdam(
        twin.parameters(), lr=0.01, weight_decay=0.1, clip=st.ClipByNorm(0.05),
        accumulation_steps=2, **more,
    )  # fmt: skip
    for number, batch in enumerate(batches(dtype)):
        loss_of(twin, batch).backward()
        if number % 2:
            optimizer.param_groups[0]["lr"] = rates[number // 2]
            optimizer.step()
            optimizer.zero_grad()
    assert rates == pytest.approx([rate(k) for k in range(STEPS)])
    assert same(model, twin) and setup.global_steps == STEPS
    assert setup.optimizer.last_step.clip_coef < 1.0
    state = setup.optimizer.state[model[0].weight]
    assert ("remainder" in state) == narrow


def test_as_torch():
    """A mean over passes that is clipped, and Adam with an L2 term."""
    config = {**BASE, "optimizer": {
        "type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": False}}
    }  # fmt: skip
    model, _, rates = run(config, torch.float32)
    twin = model_of()
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.01, weight_decay=0.1)
    for number, batch in enumerate(batches(torch.float32)):
        (loss_of(twin, batch) / 2).backward()
        if number % 2:
            torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.05)
            optimizer.param_groups[0]["lr"] = rates[number // 2]
            optimizer.step()
            optimizer.zero_grad()
    for own, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)


def test_float16_with_overflows():
    """The schedule waits for a step that is skipped; the scale is DeepSpeed's."""
    scale = {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2, "hysteresis": 2}
    config = {**BASE, "fp16": scale, "zero_optimization": {"stage": 1}}
    overflows = {2: math.inf, 3: math.inf, 5: math.inf}
    model, setup, rates = run(config, torch.float16, overflows)
    wanted = [rate(k) for k in (0, 1, 2, 2, 2, 3, 3, 4)]
    assert rates == pytest.approx(wanted)
    assert setup.skipped_steps == 3 and setup.lr_scheduler.last_batch_iteration == 4
    assert setup.optimizer.loss_scale == 4.0  # kept, halved, and halved once more
    twin = model_of().half()
    optimizer = st.deepspeed.FusedAdam(
        twin.parameters(), lr=0.01, weight_decay=0.1, clip=st.ClipByNorm(0.05), master="f32",
        accumulation_steps=2, loss_scale=st.deepspeed.DynamicLossScaler(
            16.0, scale_window=2, delayed_shift=2),
    )  # fmt: skip
    for number, batch in enumerate(batches(torch.float16)):
        loss = loss_of(twin, batch, overflows.get(number // 2, 1.0))
        optimizer.scale(loss).backward()
        if number % 2:
            optimizer.param_groups[0]["lr"] = rates[number // 2]
            optimizer.step()
            optimizer.zero_grad()
    assert same(model, twin)


def scales(overflows, window):
    """Behind each step, as FP16_Optimizer._update_scale of DeepSpeed 0.19.8 has them from 16."""
    scale, last = 16.0, -1
    for number, overflow in enumerate(overflows):
        stable = number - last - 1
        if overflow:
            scale, last = max(scale / 2.0, 1.0), number
        elif stable > 0 and stable % window == 0:
            scale *= 2.0
        yield scale


@pytest.mark.parametrize(
    ("overflows", "window", "wanted"),
    [("010010", 1000, [16, 8, 8, 8, 4, 4]), ("0000110000000", 2, None),
     ("1111111000", 1000, [8, 4, 2, 1, 1, 1, 1, 1, 1, 1])],
)  # fmt: skip
def test_float16_of_stage_0(overflows, window, wanted):
    """DeepSpeed's FP16_Optimizer: no hysteresis, and nothing is raised at the least scale."""
    scale = {"enabled": True, "initial_scale_power": 4, "loss_scale_window": window}
    scale |= {"hysteresis": 2, "consecutive_hysteresis": True}
    config = {**BASE, "gradient_accumulation_steps": 1, "fp16": scale}
    model, found = model_of(), []
    with pytest.warns(UserWarning, match="here: fp16.hysteresis, fp16.consecutive_hysteresis$"):
        setup = st.deepspeed.from_config(config, model)
    assert "on stage 0 every overflow lowers" in setup.keys["fp16.hysteresis"]
    for digit in overflows:
        batch = batches(torch.float16)[0]
        setup.backward(loss_of(model, batch, math.inf if digit == "1" else 1.0))
        setup.step()
        found.append(setup.optimizer.loss_scale)
    assert found == list(scales(map(int, overflows), window)) == (wanted or found)


def test_the_least_scale_raises():
    config = {**BASE, "fp16": {"enabled": True, "initial_scale_power": 1, "hysteresis": 1}}
    config["zero_optimization"] = {"stage": 1}
    model = model_of()
    setup = st.deepspeed.from_config(config, model)
    with pytest.raises(errors.LossScaleError, match="already at minimum"):
        for batch in batches(torch.float16):
            setup.backward(loss_of(model, batch, math.inf))
            setup.step()
    assert setup.global_steps == 1 and setup.lr_scheduler.last_batch_iteration == -1


def test_what_is_logged(caplog):
    config = {**BASE, "steps_per_print": 3, "wall_clock_breakdown": True}
    with caplog.at_level(logging.INFO, "stepc.torch.deepspeed"):
        run(config, torch.float32)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("step=3, skipped=0, lr=[") and first.endswith(" ms")
    assert "mom=[(0.9, 0.999)] | step: " in second and second.startswith("step=6")
    caplog.clear()
    with caplog.at_level(logging.INFO, "stepc.torch.deepspeed"):
        run({**BASE, "wall_clock_breakdown": True}, torch.float32)
        run(BASE, torch.float32)
    assert len(caplog.records) == STEPS


def test_states_on_disk(tmp_path):
    """offload_optimizer to NVMe changes no bit of a run on the CPU. Small states stay in memory."""
    zero = {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": str(tmp_path)}}
    ends = []
    for device in ("nvme", "cpu"):
        zero["offload_optimizer"]["device"] = device
        torch.manual_seed(0)
        model = torch.nn.Linear(300, 300)
        setup = st.deepspeed.from_config({**BASE, "zero_optimization": zero}, model)
        for _ in range(3):
            setup.backward(model(torch.ones(4, 300)).square().mean())
            setup.step()
        ends.append(model)
        assert (setup.optimizer.stored() is not None) == (device == "nvme")
    assert same(*ends)


def test_a_run_goes_on():
    """From the states of the optimizer and of the schedule."""
    whole, _, _ = run(BASE, torch.float32)
    model = model_of()
    setup = st.deepspeed.from_config(BASE, model)
    for number, batch in enumerate(batches(torch.float32)):
        if number == STEPS:
            saved = (setup.optimizer.state_dict(), setup.lr_scheduler.state_dict())
            setup = st.deepspeed.from_config(BASE, model)
            setup.optimizer.load_state_dict(saved[0])
            setup.lr_scheduler.load_state_dict(saved[1])
        setup.backward(loss_of(model, batch))
        if number % 2:
            setup.step()
    assert same(model, whole)


class OfRows(torch.nn.Module):
    """The model with the loss that a Trainer asks for."""

    def __init__(self):
        super().__init__()
        self.own = model_of()

    def forward(self, x=None):
        return {"loss": self.own(x).square().mean()}


def test_in_the_loop_of_the_trainer(tmp_path):
    """It divides losses and clips, the schedule moves at each of its steps: as torch's AdamW."""
    transformers = pytest.importorskip("transformers")
    ends, config = [], {
        "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {
            "total_num_steps": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    }  # fmt: skip
    for kind in ("ours", "torch"):
        arguments = transformers.TrainingArguments(
            str(tmp_path / kind), max_steps=STEPS, per_device_train_batch_size=4, report_to=[],
            gradient_accumulation_steps=2, max_grad_norm=0.05, learning_rate=0.01, warmup_steps=3,
            use_cpu=True, logging_strategy="no", disable_tqdm=True, save_strategy="no",
        )  # fmt: skip
        model = OfRows()
        if kind == "ours":
            setup = st.deepspeed.from_config(config, model, arguments, for_trainer=True)
            both = (setup.optimizer, setup.lr_scheduler)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
            shares = [math.log(k) / math.log(3) if k else 0.0 for k in range(4)]
            shares += [(STEPS - k + 1) / (STEPS - 3) for k in range(4, STEPS + 1)]
            both = (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, shares.__getitem__))
        rows = [{"x": row} for batch in batches(torch.float32) for row in batch]
        transformers.Trainer(model, arguments, train_dataset=rows, optimizers=both).train()
        ends.append(model)
    assert setup.lr_scheduler.last_batch_iteration == STEPS - 1
    assert setup.optimizer.last_step is not None
    for own, theirs in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-6)
