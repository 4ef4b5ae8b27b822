# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepSpeed's configurations on four ranks: the run of one that is written by hand, to the bit."""

import copy
import tempfile
import warnings

import stepc.torch as st
import torch
import torch.distributed as dist
from ds_configs import FILES, arguments
from on_ranks import case, main, same_bits
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

STEPS = 4


def model_of():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def batches(dtype):
    made = torch.Generator().manual_seed(10 + dist.get_rank())
    return [torch.randn(4, 8, generator=made).to(dtype) for _ in range(2 * STEPS)]


def loss_of(model, batch):
    return model(batch).float().square().mean()


@case
def stage_2():
    """With buckets of elements, a type for what crosses, bfloat16 and two passes to a step."""
    config = {
        "train_batch_size": 32, "gradient_accumulation_steps": 2, "gradient_clipping": 0.05,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "bf16": {"enabled": True},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}},
        "communication_data_type": "fp32", "prescale_gradients": True,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 100, "allgather_bucket_size": 50,
                              "overlap_comm": False},
    }  # fmt: skip
    model, twin = model_of(), model_of().bfloat16()
    setup = st.deepspeed.from_config(config, model)
    assert (setup.train_micro_batch_size_per_gpu, setup.zero_stage) == (4, 2)
    assert "reduce_bucket_bytes=400, gather_bucket_bytes=100" in str(setup.optimizer._zero)
    optimizer = st.deepspeed.FusedAdam(
        twin.parameters(), lr=0.01, master="remainder", skip_nonfinite=True, accumulation_steps=2,
        clip=st.ClipByNorm(0.05), zero=st.Zero(
            2, reduce_dtype=torch.float32, predivide=True, overlap=False, reduce_bucket_bytes=400,
            gather_bucket_bytes=100),
    )  # fmt: skip
    for number, batch in enumerate(batches(torch.bfloat16)):
        setup.backward(loss_of(model, batch))
        loss_of(twin, batch).backward()
        if number % 2:
            optimizer.param_groups[0]["lr"] = setup.optimizer.param_groups[0]["lr"]
            setup.step()
            optimizer.step()
            optimizer.zero_grad()
    assert setup.lr_scheduler.get_last_lr() == [0.01]
    for number, (own, other) in enumerate(zip(model.parameters(), twin.parameters(), strict=True)):
        same_bits(own, other, f"parameter {number}")


def sharded(policy=None):
    model = model_of()
    more = {} if policy is None else {"offload_policy": policy}
    for layer in (model[0], model[2]):
        fully_shard(layer, **more)
    return fully_shard(model, **more)


@case
def stage_3():
    """Hugging Face's complete files, with FSDP2: parameters in float32 are their own masters."""
    for name in ("ZeRO-3, auto", "ZeRO-3, by hand", "NVMe"):
        model, twin = sharded(CPUOffloadPolicy(pin_memory=False)), sharded()
        model.config = type("Config", (), {"hidden_size": 8})
        config = copy.deepcopy(FILES[name])
        config["fp16"]["enabled"] = False
        if name == "NVMe":
            is_refused(config, model, "parameters stay in memory", arguments(fp16=False))
            zero = config["zero_optimization"]
            zero["offload_param"]["device"] = "cpu"
            zero["offload_optimizer"]["nvme_path"] = tempfile.gettempdir()
        params = {} if "hand" not in name else {
            "learning_rate": 3e-5, "adam_beta1": 0.8, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
            "weight_decay": 3e-7, "warmup_steps": 500,
        }  # fmt: skip
        given = arguments(fp16=False, **params)
        setup = st.deepspeed.from_config(config, model, given)
        assert setup.train_batch_size == 16 and setup.zero_stage == 3
        optimizer = st.deepspeed.DeepSpeedCPUAdam(
            twin.parameters(), lr=given.learning_rate, eps=given.adam_epsilon,
            betas=(given.adam_beta1, given.adam_beta2), weight_decay=given.weight_decay,
            accumulation_steps=2, clip=st.ClipByNorm(1.0 if "hand" in name else 0.5),
        )  # fmt: skip
        for number, batch in enumerate(batches(torch.float32)):
            setup.backward(loss_of(model, batch))
            loss_of(twin, batch).backward()
            if number % 2:
                optimizer.param_groups[0]["lr"] = setup.optimizer.param_groups[0]["lr"]
                setup.step()
                optimizer.step()
                optimizer.zero_grad()
        for own, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert isinstance(own, DTensor)
            same_bits(own.to_local(), other.to_local(), name)


def is_refused(config, model, words, given=None, **more):
    try:
        st.deepspeed.from_config(config, model, given, **more)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {config}")


@case
def other_worlds():
    """A batch that four ranks cannot have, and stages that the parameters are not of."""
    base = {"optimizer": {"type": "Adam"}, "gradient_clipping": 0.0}
    for config, model, words in (
        ({"train_batch_size": 6}, model_of(), "6 != 1 * 1 * 4"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 3}}, model_of(), "fully_shard"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 2}}, sharded(), "expected 3"),
    ):
        is_refused({**base, **config}, model, words)


@case
def masters_of_dtensors():
    """DTensors of the file's type have masters, those in float32 are their own."""
    base = {"train_batch_size": 16, "zero_optimization": {"stage": 3}, "gradient_clipping": 0.0}
    base["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}}
    for kind, dtype, by_hand in (
        ("bf16", torch.bfloat16, {"master": "remainder", "skip_nonfinite": True}),
        ("fp16", torch.float16,
         {"master": "f32", "loss_scale": st.deepspeed.loss_scaler(initial_scale_power=4)}),
    ):  # fmt: skip
        model, twin = (fully_shard(model_of().to(dtype)) for _ in range(2))
        config = {**base, kind: {"enabled": True}}
        if kind == "fp16":
            config["fp16"]["initial_scale_power"] = 4
        setup = st.deepspeed.from_config(config, model)
        optimizer = st.deepspeed.FusedAdam(twin.parameters(), lr=1e-4, **by_hand)
        for batch in batches(dtype):
            setup.backward(loss_of(model, batch))
            optimizer.scale(loss_of(twin, batch)).backward()
            setup.step()
            optimizer.step()
            optimizer.zero_grad()
        for own, other in zip(model.parameters(), twin.parameters(), strict=True):
            same_bits(own.to_local(), other.to_local(), kind)
        states = setup.optimizer.state[model[0].weight]
        assert ("remainder" if kind == "bf16" else "master") in states, list(states)
        words = "acted on: float32 DTensors are their own masters"
        setup = st.deepspeed.from_config(config, sharded())
        assert setup.keys[f"{kind}.enabled"] == words and setup.optimizer._master is None
        mixed = sharded()
        fully_shard(mixed.append(torch.nn.Linear(4, 4).to(dtype))[-1])
        is_refused(config, mixed, f"become {dtype} and torch.float32, as DTensors are not cast")


@case
def gradients_of_others():
    """A cast takes parameters from DistributedDataParallel, which has to come behind; the Trainer
    clips gradients that Zero(2) has taken."""
    base = {"train_batch_size": 16, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    narrow = {**base, "bf16": {"enabled": True}}
    wrapped = torch.nn.parallel.DistributedDataParallel(model_of())
    is_refused(narrow, torch.nn.Sequential(wrapped), "call from_config, then DistributedDataPar")
    assert all(param.dtype == torch.float32 for param in wrapped.parameters())
    words = "on stage 0 nothing averages the gradients of the model over ranks: wrap it in Dis"
    for model in (wrapped, model_of()):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            st.deepspeed.from_config(base, model)
        named = any(words in str(one.message) for one in told)
        assert named == (model is not wrapped and dist.get_rank() == 0), told
    cast = torch.nn.parallel.DistributedDataParallel(model_of().bfloat16())
    st.deepspeed.from_config(narrow, cast)  # is of the dtype already
    model = model_of()
    setup = st.deepspeed.from_config(narrow, model)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    setup.backward(loss_of(wrapped, batches(torch.bfloat16)[0]))
    setup.step()
    ends = [None] * dist.get_world_size()
    dist.all_gather_object(ends, model[0].weight.detach())
    assert all(end.equal(ends[0]) for end in ends) and not ends[0].equal(cast.module[0].weight)
    zero = {**base, "gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}
    given = arguments(fp16=False, gradient_accumulation_steps=2, learning_rate=0.1)
    words = "the Trainer clips .grad, which Zero(2) takes in the backward pass: expected 0, 1"
    is_refused(zero, model_of(), words, given, for_trainer=True)
    zero["zero_optimization"]["stage"] = 1
    st.deepspeed.from_config(zero, model_of(), given, for_trainer=True)


if __name__ == "__main__":
    main()
