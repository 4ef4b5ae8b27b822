# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc.torch.deepspeed.from_config``: every key, and what is refused."""

import copy
import json
import warnings

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
    with_key,
)
from ds_configs import FILES, arguments
from stepc.torch.deepspeed import config as _config
from stepc.torch.deepspeed import from_config, placement
from stepc.torch.deepspeed.keys import ACTED, ENGINE, KEYS, NONE, REFUSED
from stepc.torch.deepspeed.reading import Said

# --- Every key ------------------------------------------------------------------------------------

# Those of DeepSpeed 0.19.8, by block: from its constants and the fields of its models.
SCHEMA = {
    "": """train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps
        managed_gradient_accumulation zero_allow_untested_optimizer zero_force_ds_cpu_optimizer
        steps_per_print gradient_clipping communication_data_type prescale_gradients
        seq_parallel_communication_data_type gradient_predivide_factor gradient_allreduce_op
        disable_allgather dump_state disable_python_gc vocabulary_size wall_clock_breakdown
        memory_breakdown dataloader_drop_last use_data_before_expert_parallelism log_level
        sequence_parallel_size torch_autocast activation_checkpointing checkpoint comms_logger
        tensorboard wandb csv_monitor comet flops_profiler autotuning hybrid_engine pipeline
        data_efficiency datastates weight_quantization compile timers tensor_parallel
        expert_parallel nebula compression_training quantize_training sparse_gradients eigenvalue
        sparse_attention elasticity graph_harvesting curriculum_learning
        progressive_layer_drop""",
    "optimizer": "type params legacy_fusion",
    "scheduler": "type params",
    "amp": "enabled opt_level",
    "fp16": """enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis
        consecutive_hysteresis min_loss_scale fp16_master_weights_and_grads""",
    "bf16": """enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads
        bf16_optimizer_states""",
    "data_types": "grad_accum_dtype param_dtype buffer_dtype keep_in_fp32_modules",
    "aio": """block_size queue_depth intra_op_parallelism thread_count single_submit overlap_events
        use_gds""",
    "zero_optimization": """stage contiguous_gradients reduce_scatter reduce_bucket_size
        use_multi_rank_bucket_allreduce allgather_partitions allgather_bucket_size overlap_comm
        compute_grad_norm load_from_fp32_weights elastic_checkpoint zenflow sub_group_size
        cpu_offload_param cpu_offload_use_pin_memory cpu_offload stage3_prefetch_bucket_size
        stage3_param_persistence_threshold stage3_model_persistence_threshold
        stage3_max_live_parameters stage3_max_reuse_distance
        stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold
        stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential
        stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1
        round_robin_gradients parameter_alignment zero_hpz_partition_size zero_quantized_weights
        zero_quantized_nontrainable_weights zero_quantized_gradients memory_efficient_linear
        pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings
        enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module mics_shard_size
        mics_hierarchical_params_gather zeropp_loco_param""",
    "zero_optimization.offload_optimizer": """device nvme_path buffer_count pin_memory
        pipeline_read pipeline_write fast_init ratio super_offload cpuadam_cores_perc""",
    "zero_optimization.offload_param": """device nvme_path buffer_count buffer_size max_in_cpu
        pin_memory""",
}


def test_the_table_has_every_key_of_deepspeed():
    names = {f"{block}.{n}".lstrip(".") for block, own in SCHEMA.items() for n in own.split()}
    assert names == set(KEYS)


def zero_of(config):
    return _config._zero(Said(config), None, [torch.ones(2)], 4)["zero"]


def of_fp16(path, value):
    config = with_key(path, value, with_key("fp16.enabled", True, STAGE1))
    return optimizer_of(config)._given.scaling[0]


def nvme(path, value):
    base = with_key("zero_optimization.offload_optimizer.device", "nvme")
    base = with_key("zero_optimization.offload_optimizer.nvme_path", "/dev", base)
    return placement(with_key(path, value, base))


def refusal(path, value, base=PLAIN):
    with pytest.raises(ValueError) as error:
        from_config(with_key(path, value, base), model_of())
    return str(error.value)


def of_bf16(path, value, base=None):
    base = with_key("zero_optimization.stage", 1, with_key("bf16.enabled", True, base or PLAIN))
    return optimizer_of(with_key(path, value, base))


def setup_of(path, value):
    return quiet(with_key(path, value), model_of())[0]


STAGE1 = with_key("zero_optimization.stage", 1)
NARROW = with_key("bf16.bf16_master_weights_and_grads", True)
OPTIMIZER, PARAM = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"
# By key that is acted on: a value, and whether it acts.
EFFECTS = {
    "train_batch_size": (12, lambda k, v: setup_of(k, v).train_batch_size == v),
    "train_micro_batch_size_per_gpu": (
        2, lambda k, v: setup_of(k, v).gradient_accumulation_steps == 2,
    ),
    "gradient_accumulation_steps": (
        2, lambda k, v: setup_of(k, v).optimizer.accumulation_steps == v,
    ),
    "optimizer.type": ("SGD", lambda k, v: type(optimizer_of(with_key(k, v))) is st.SGD),
    "optimizer.params": (
        {"lr": 0.5}, lambda k, v: optimizer_of(with_key(k, v)).param_groups[0]["lr"] == 0.5,
    ),
    "scheduler.type": (
        "WarmupLR",
        lambda k, v: type(setup_of(k, v).lr_scheduler) is st.schedules.WarmupLR,
    ),
    "scheduler.params": (
        {"warmup_min_lr": 0.25},
        lambda k, v: optimizer_of(with_key(k, v, with_key("scheduler.type", "WarmupLR")))
        .param_groups[0]["lr"] == 0.25,
    ),
    "gradient_clipping": (0.25, lambda k, v: optimizer_of(with_key(k, v)).clip[0].max_norm == v),
    "fp16.enabled": (
        True, lambda k, v: setup_of(k, v).dtype == torch.float16,
    ),
    "fp16.loss_scale": (128.0, lambda k, v: of_fp16(k, v).scale == v),
    "fp16.initial_scale_power": (5, lambda k, v: of_fp16(k, v).init_scale == 32),
    "fp16.loss_scale_window": (7, lambda k, v: of_fp16(k, v).scale_window == v),
    "fp16.hysteresis": (3, lambda k, v: of_fp16(k, v).delayed_shift == v),
    "fp16.consecutive_hysteresis": (True, lambda k, v: of_fp16(k, v).consecutive_hysteresis),
    "fp16.min_loss_scale": (4, lambda k, v: of_fp16(k, v).min_scale == v),
    "bf16.enabled": (
        True,
        lambda k, v: setup_of(k, v).dtype == torch.bfloat16
        and optimizer_of(with_key(k, v))._master == "remainder",
    ),
    "bf16.check_grad_overflow": (
        False, lambda k, v: not of_bf16(k, v)._given.skip and of_bf16(k, True)._given.skip,
    ),
    "bf16.bf16_master_weights_and_grads": (True, lambda k, v: of_bf16(k, v)._master is None),
    "bf16.bf16_optimizer_states": (
        True, lambda k, v: "bfloat16" in str(of_bf16(k, v, NARROW)._state_dtype),
    ),
    "data_types.grad_accum_dtype": (
        "bf16",
        lambda k, v: "expected null, or for fp32 stage 2 of several"
        in refusal(k, v, with_key("gradient_accumulation_steps", 2)),
    ),
    "data_types.param_dtype": (
        "bf16", lambda k, v: "expected that of the parameters, torch.float32" in refusal(k, v),
    ),
    "zero_optimization.stage": (2, lambda k, v: zero_of(with_key(k, v)).stage == 2),
    "zero_optimization.reduce_bucket_size": (
        5e8,
        lambda k, v: zero_of(with_key(k, v, STAGE1)).reduce_bucket_bytes == 2_000_000_000,
    ),
    "zero_optimization.allgather_bucket_size": (
        10,
        lambda k, v: zero_of(with_key(k, v, STAGE1)).gather_bucket_bytes == 40,
    ),
    "zero_optimization.overlap_comm": (
        False,
        lambda k, v: not zero_of(with_key(k, v, STAGE1)).overlap,
    ),
    "prescale_gradients": (
        True, lambda k, v: zero_of(with_key(k, v, STAGE1)).predivide,
    ),
    "communication_data_type": (
        "bf16",
        lambda k, v: zero_of(with_key(k, v, STAGE1)).reduce_dtype == torch.bfloat16,
    ),
    "zero_optimization.cpu_offload": (
        True, lambda k, v: placement(with_key(k, v))["states"] == "host",
    ),
    "zero_optimization.cpu_offload_param": (
        True, lambda k, v: Said(_config.read(with_key(k, v)))[f"{PARAM}.device"] == "cpu",
    ),
    f"{OPTIMIZER}.device": (
        "cpu",
        lambda k, v: placement(with_key(k, v))["states"] == "host"
        and type(optimizer_of(with_key(k, v, STAGE1)))
        is st.deepspeed.DeepSpeedCPUAdam,
    ),
    f"{OPTIMIZER}.nvme_path": ("/", lambda k, v: nvme(k, v)["path"] == v),
    f"{OPTIMIZER}.ratio": (0.25, lambda k, v: nvme(k, v)["fraction"] == v),
    f"{OPTIMIZER}.buffer_count": (
        6, lambda k, v: nvme(k, v)["buffers"] == v and nvme(k, 0)["buffers"] == 2,
    ),
    f"{PARAM}.device": ("nvme", lambda k, v: "expected 'none' or 'cpu'" in refusal(k, v)),
    "aio.queue_depth": (
        4, lambda k, v: nvme(k, v)["threads"] == v and nvme(k, 4000)["threads"] == 64,
    ),
    "aio.intra_op_parallelism": (2, lambda k, v: nvme(k, v)["threads"] == 16),
    "steps_per_print": (9, lambda k, v: setup_of(k, v).steps_per_print == v),
    "wall_clock_breakdown": (
        True, lambda k, v: setup_of(k, v).wall_clock_breakdown,
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", KEYS)
def test_every_key(path):
    """Its default, values of other types, and what is done about it."""
    key = KEYS[path]
    if key.check.accepts(key.default):
        assert Said(with_key(path, key.default))[path] == key.default
    for wrong in ("wrong", -2, 0.5, [1], {"a": 1}):
        if not key.check.accepts(wrong) and not (key.done == REFUSED and wrong == key.default):
            refused(with_key(path, wrong), rf"'{path}' is .*, expected")
    if key.done == REFUSED:
        others = (True, {"enabled": True}, "sum", 3)
        other = next(o for o in others if key.check.accepts(o) and o != key.default)
        words = refused(with_key(path, other), f"'{path}' is")
        assert key.words in words
    elif key.done == ACTED:
        value, acts = EFFECTS[path]
        assert acts(path, value), path
    else:
        given = key.default if key.check.accepts(key.default) else 1
        setup, told = quiet(with_key(path, given), model_of())
        assert [path in text and f"{key.done}: " in text for text in told] == [True]
        assert setup.keys[path] == f"{key.done}: {key.words}"
    assert key.done in (ACTED, ENGINE, NONE, REFUSED)


def test_what_is_switched_off_is_not_refused():
    config = {
        **PLAIN, "elasticity": {"enabled": False}, "amp": {"enabled": False},
        "tensor_parallel": {"autotp_size": 1}, "weight_quantization": {},
        "zero_optimization": {"zenflow": None, "offload_optimizer": None},
    }  # fmt: skip
    assert quiet(config, model_of())[1] == []


# --- What is refused ------------------------------------------------------------------------------


def test_all_that_is_wrong_is_in_one_message():
    config = {
        **PLAIN, "fp17": {}, "loss_scale": 3, "zero_optimizaton": {"stage": 1}, "qqq": 1,
        "zero_optimization": {"stge": 1, "stage": 4, "overlap_comm": "auto"}, "bf16": 3,
    }  # fmt: skip
    words = refused(config, "the DeepSpeed configuration cannot be followed:")
    assert words.splitlines()[1:] == [
        "- 'fp17' is unknown, the nearest is 'fp16'",
        "- 'loss_scale' is unknown, the nearest is 'fp16.loss_scale'",
        "- 'zero_optimizaton' is unknown, the nearest is 'zero_optimization'",
        "- 'qqq' is unknown",
        "- 'zero_optimization.stge' is unknown, the nearest is 'zero_optimization.stage'",
        "- 'zero_optimization.stage' is 4, expected 0, 1, 2, 3",
        "- 'zero_optimization.overlap_comm' is 'auto', expected true or false or null; \"auto\" is "
        "resolved from training_arguments, as transformers' Trainer does",
        "- 'bf16' is 3, expected a block",
    ]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**PLAIN, "optimizer": {}}, "has no 'optimizer.type'"),
        (optimizer("adamv"), "'optimizer.type' is 'adamv', the nearest is 'adam'"),
        (optimizer("sgd"), "'optimizer.type' is 'sgd', the nearest is 'SGD'"),
        (optimizer("OneBitAdam"), "'OneBitAdam', which is not here: compressed gradients change"),
        (optimizer("MuSGD"), "'MuSGD', which is not here: it needs the package mup"),
        (optimizer("LBFGS"), "'optimizer.type' is 'LBFGS'"),
        (optimizer("Adam", rl=1), "'optimizer.params.rl' is unknown, expected lr, bias_corr"),
        (optimizer("Adam", weight_decai=1), "the nearest is 'weight_decay'"),
        (optimizer("Adam", lr="1"), "'optimizer.params.lr' is '1', expected a number from 0 on"),
        (optimizer("Adam", lr="auto"), '"auto" is resolved from training_arguments'),
        (optimizer("Adam", lr=-1), "'optimizer.params.lr' is -1, expected a number from 0 on"),
        (optimizer("Adam", betas=[0.9]), "expected two numbers from 0 to below 1"),
        (optimizer("Lamb", max_grad_norm=1), "is not supported, give 'gradient_clipping'"),
        (optimizer("SGD", momentum=0.9, rho=1), "'optimizer.params.rho' is unknown"),
        (optimizer("SGD", dampening="x"), "'optimizer.params.dampening' is 'x', expected a number"),
        (optimizer("SGD", maximize=1), "'optimizer.params.maximize' is 1, expected true or false"),
        (optimizer("Adafactor", eps=[1]), r"expected 2 of them, as \[None, 0.001\]"),
        (optimizer("SGD", nesterov=True), "Nesterov momentum requires a momentum"),
        (optimizer("Adagrad", amsgrad=True), "Adagrad has none"),
        (optimizer("Adam", amsgrad=True), "expected false: Adam of DeepSpeed has none"),
        (optimizer("Lamb", amsgrad=True), "expected false: Lamb has none"),
        ({**PLAIN, "zero_optimization": {"stage": 2, "zenflow": {}}}, "zenflow' is {}, expected N"),
        (with_key("zero_optimization.reduce_bucket_size", 10**400), "from 1 on, of 64 bits"),
        (with_key("zero_optimization.sub_group_size", 1e19), ", of 64 bits"),
        (with_key("fp16.loss_scale", 10**400), "expected a number from 0 on"),
        (with_key(f"{OPTIMIZER}", {"device": "nvme", "nvme_path": "/absent/x"}, STAGE1),
         "nvme_path' is '/absent/x', expected a folder that is there"),
        (optimizer("Muon", per_head_muon=True), "give model_parameters groups with a view"),
        (optimizer("Muon", adam_w_mode=False, weight_decay=0.1), "Adam beside Muon decays"),
        (optimizer("Muon", ns_method="cubic"), "expected 'gram', 'standard'"),
        (schedule("WarmupLr"), "'scheduler.type' is 'WarmupLr', the nearest is 'WarmupLR'"),
        (schedule("Cubic"), "'scheduler.type' is 'Cubic', expected LRRangeTest, OneCycle"),
        (schedule("WarmupDecayLR"), "'scheduler.params' has no 'total_num_steps', expected them"),
        (schedule("WarmupLR", warmup_min_lr="0"), "expected a number, or a list of one for each"),
        (schedule("WarmupLR", warmup_min_lr=[0, 0]), "expected 1 value for min_lr, got 2"),
        (schedule("StepLR", step_size="x"), "'scheduler.params' do not give a schedule: .*'str'"),
        (schedule("ReduceLROnPlateau"), "'scheduler.type' is 'ReduceLROnPlateau'"),
        (schedule("LambdaLR"), "'scheduler.params' has no 'lr_lambda', expected them"),
        ({**PLAIN, "fp16": {"enabled": True, "initial_scale_power": 2000}}, "at most 1023"),
        (schedule("WarmupLR", warmup_steps=3), "the nearest is 'warmup_num_steps'"),
        (schedule("WarmupLR", warmup_num_steps=0), "expected a whole number from 1 on"),
        (schedule("WarmupLR", warmup_type="cubic"), "expected 'log', 'linear'"),
        (schedule("OneCycle", cycle_min_lr=0, cycle_max_lr=1, cycle_first_step_size=0),
         "cycle_first_step_size must be positive"),
        ({**PLAIN, "scheduler": {"params": {}}}, "has no 'scheduler.type'"),
        ({**PLAIN, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
         "bfloat16 and fp16 modes cannot be simultaneously enabled"),
        ({**PLAIN, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
         "'zero_optimization.stage' is 0, expected 1 to 3"),
        ({**PLAIN, "zero_optimization": {"stage": 1},
          "bf16": {"enabled": True, "bf16_optimizer_states": True}},
         "bf16_optimizer_states requires bf16_master_weights_and_grads"),
        ({**PLAIN, "bfloat16": {}, "bf16": {}}, "'bfloat16' and 'bf16' are both given"),
        ({**PLAIN, "aio": {}, "zero_optimization": {"aio": {}}}, "are both given"),
        ({**PLAIN, "zero_optimization": {"cpu_offload": True, "offload_optimizer": {}}},
         "'zero_optimization.cpu_offload' and 'offload_optimizer' are both given"),
        ({**PLAIN, "zero_optimization": {"stage": 3}},
         "parameters are not DTensors: call torch.distributed.fsdp.fully_shard"),
        ({**PLAIN, "zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
         "expected an 'nvme_path' beside it"),
        ({"optimizer": {"type": "Adam"}}, "Either train_batch_size or train_micro_batch_size_per_"),
        ({**PLAIN, "train_micro_batch_size_per_gpu": 3}, r"4 != 3 \* 1 \* 1"),
        ({**PLAIN, "train_micro_batch_size_per_gpu": 8}, r"4 != 8 \* 0 \* 1"),
        ({**PLAIN, "gradient_accumulation_steps": 3}, r"4 != 1 \* 3 \* 1"),
    ],
)  # fmt: skip
def test_refused(config, words):
    refused(config, words)


def test_states_on_disk(tmp_path):
    """As Hugging Face's file for NVMe has them, with parameters in memory."""
    zero = copy.deepcopy(FILES["NVMe"]["zero_optimization"])
    zero |= {"stage": 2, "offload_param": None, "reduce_bucket_size": 1000}
    zero["offload_optimizer"]["nvme_path"] = str(tmp_path)
    zero = {key: value for key, value in zero.items() if value != "auto"}
    made = optimizer_of({**PLAIN, "zero_optimization": zero})
    assert made._placed == st.Place("disk", str(tmp_path), buffers=4, threads=32)


def test_a_place_of_a_file_with_auto(tmp_path):
    """Only what is about states is looked at."""
    file = copy.deepcopy(FILES["NVMe"])
    file["zero_optimization"]["offload_optimizer"]["nvme_path"] = str(tmp_path)
    assert placement(file) == {
        "states": "disk", "path": str(tmp_path), "fraction": 1.0, "buffers": 4, "threads": 32,
    }  # fmt: skip
    assert placement({"zero_optimization": True, "train_batch_size": "auto"}) == {}
    with pytest.raises(ValueError, match="offload_optimizer.device' is 'auto', expected"):
        placement({"zero_optimization": {"offload_optimizer": {"device": "auto"}}})


def test_what_is_refused_behind_the_cast_brings_it_back():
    model = model_of()
    config = with_key("bf16.enabled", True)
    twice = [model.up.weight, model.up.weight]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        refused(config, "some parameters appear in more than one", model, model_parameters=[
            {"params": twice[:1]}, {"params": twice[1:]}])  # fmt: skip
    assert quiet(config, model)[0].dtype == torch.bfloat16


def test_muon_that_zero_clips():
    config = with_key("gradient_clipping", 1.0, optimizer("Muon"))
    words = "Muon is clipped before it orthogonalizes"
    assert not any(words in text for text in quiet(config, model_of())[1])
    config["zero_optimization"] = {"stage": 1}
    assert [words in text for text in quiet(config, model_of())[1]] == [True]
    config["gradient_clipping"] = 0.0
    assert not any(words in text for text in quiet(config, model_of())[1])


def test_parameters_on_a_device_stay_there_and_their_states_do_not():
    said = Said(with_key(f"{OPTIMIZER}.device", "cpu"))
    of_device = [torch.ones(2, device="meta")]
    assert _config.place_of(said, of_device) == {"place": st.Place("host")}
    assert _config.place_of(said, [torch.ones(2)]) == {}
    said = Said(with_key(f"{PARAM}.device", "cpu"))
    with pytest.raises(
        ValueError, match=r"fully_shard\(..., offload_policy=CPUOffloadPolicy\(\)\)"
    ):
        _config.place_of(said, of_device)


def test_files(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({**PLAIN, "train_batch_size": 6}))
    assert quiet(path, model_of())[0].train_batch_size == 6
    assert quiet(str(path), model_of())[0].train_batch_size == 6
    with pytest.raises(FileNotFoundError, match="absent.json"):
        from_config(tmp_path / "absent.json", model_of())
    for text, words in (
        ('{"a": 1', r"ds_config.json: Expecting ',' delimiter: line 1 column 8"),
        ('{"a": 1, "b": 2, "a": 3}', r"Duplicate keys in DeepSpeed config: \['a'\]"),
        ("[1]", r"the file has \[1\], expected a JSON object"),
    ):
        path.write_text(text)
        refused(path, words)
    with pytest.raises(TypeError, match="config is 3, expected a dict or the path of a JSON file"):
        from_config(3, model_of())
    frozen = model_of().requires_grad_(False)
    refused(PLAIN, "no parameter needs a gradient", frozen)


def test_the_dict_stays_as_it_is():
    config = copy.deepcopy(FILES["ZeRO-2, auto"])
    before = copy.deepcopy(config)
    quiet(config, model_of(), arguments())
    assert config == before
