# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every key of a ``ds_config.json``, as DeepSpeed 0.19 reads it: its default, what it may be, and
what Stepc does about it."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import (
    ANY,
    BLOCK,
    BOOL,
    BOOL_OR_NULL,
    DTYPE,
    TEXT,
    Check,
    number,
    one_of,
    optional,
    share,
    whole,
)

# What is done about a key. Those of the engine and those without meaning are named once.
ACTED = "acted on"
ENGINE = "the engine's"
NONE = "without meaning here"
REFUSED = "refused"


@dataclass(frozen=True)
class Key:
    """``words``: what it becomes here; of one that is refused, with another value than its default,
    why, or what to do in its place."""

    default: object
    check: Check
    done: str
    words: str


def _keys(done: str, words: str, prefix: str = "", **defaults) -> dict[str, Key]:
    """Several of one kind: by name the default, with its check, or True or False alone."""
    rows = {n: (d, BOOL) if isinstance(d, bool) else d for n, d in defaults.items()}
    return {
        f"{prefix}{n}": Key(default, check, done, words) for n, (default, check) in rows.items()
    }


_FREE = ({}, BLOCK)  # a block whose keys nobody looks at
_COUNT = whole(1)
_SIZE = whole(0)

_BATCHES = _keys(
    ACTED,
    "train_batch_size = micro batch * accumulation * ranks; what is missing follows",
    train_batch_size=(None, optional(_COUNT)),
    train_micro_batch_size_per_gpu=(None, optional(_COUNT)),
) | {
    "gradient_accumulation_steps": Key(
        None, optional(_COUNT), ACTED, "accumulation_steps= of the optimizer"
    ),
    "managed_gradient_accumulation": Key(True, BOOL, NONE, "the loop says when to step"),
}

_OPTIMIZER = {
    "optimizer.type": Key(None, optional(TEXT), ACTED, "the class of the optimizer"),
    "optimizer.params": Key({}, BLOCK, ACTED, "its arguments"),
    "optimizer.legacy_fusion": Key(False, BOOL, NONE, "the step is compiled"),
    "scheduler.type": Key(None, optional(TEXT), ACTED, "of stepc.torch.schedules, or torch's"),
    "scheduler.params": Key({}, BLOCK, ACTED, "its arguments"),
    "gradient_clipping": Key(1.0, number(0), ACTED, "clip=ClipByNorm(...); 0: none"),
    "zero_allow_untested_optimizer": Key(False, BOOL, NONE, "all optimizers go with ZeRO"),
    "zero_force_ds_cpu_optimizer": Key(True, BOOL, NONE, "all have a step on processors"),
}

_FP16 = _keys(
    ACTED,
    "stepc.torch.deepspeed.loss_scaler(...)",
    "fp16.",
    loss_scale=(0, number(0)),
    initial_scale_power=(16, whole(0)),
    loss_scale_window=(1000, whole(1)),
    hysteresis=(2, whole(1)),
    consecutive_hysteresis=False,
    min_loss_scale=(1, number(0)),
)
_PRECISION = {
    "fp16.enabled": Key(False, BOOL, ACTED, 'float16 parameters, master="f32", a loss scale'),
    "fp16.auto_cast": Key(False, BOOL, ENGINE, "cast the inputs of the model"),
    "fp16.fp16_master_weights_and_grads": Key(
        False, BOOL, REFUSED, "masters are float32 beside float16"
    ),
    "bf16.enabled": Key(False, BOOL, ACTED, 'bfloat16 parameters, master="remainder"'),
    "bf16.check_grad_overflow": Key(True, BOOL, ACTED, "skip_nonfinite="),
    "bf16.bf16_master_weights_and_grads": Key(False, BOOL, ACTED, "no master"),
    "bf16.bf16_optimizer_states": Key(False, BOOL, ACTED, "state_dtype=torch.bfloat16"),
    "bf16.immediate_grad_update": Key(False, BOOL, NONE, "gradients are added as they come"),
    "torch_autocast": Key(*_FREE, ENGINE, "torch.autocast around the forward pass"),
    "data_types.grad_accum_dtype": Key(
        None, DTYPE, ACTED, "checked: .grad has its parameter's dtype, Zero(2) adds in float32"
    ),
    "data_types.param_dtype": Key(None, DTYPE, ACTED, "checked beside fp16 and bf16"),
    "data_types.buffer_dtype": Key(None, DTYPE, ENGINE, "cast the model's buffers"),
    "data_types.keep_in_fp32_modules": Key("auto", ANY, ENGINE, "buffers stay as they are"),
    "amp.enabled": Key(False, BOOL, REFUSED, "Apex's AMP; use fp16 or bf16"),
    "amp.opt_level": Key("O1", ANY, NONE, "of Apex's AMP"),
}

_ZERO = {
    "zero_optimization.stage": Key(
        0,
        one_of(0, 1, 2, 3),
        ACTED,
        "1, 2: zero=Zero(...); 3: parameters are fully_shard's; 0: DDP's",
    ),
    "zero_optimization.reduce_bucket_size": Key(
        500_000_000, whole(1), ACTED, "Zero(reduce_bucket_bytes=), in elements; absent: ours"
    ),
    "zero_optimization.allgather_bucket_size": Key(
        500_000_000, _SIZE, ACTED, "Zero(gather_bucket_bytes=), in elements; absent: ours"
    ),
    "zero_optimization.overlap_comm": Key(
        None, BOOL_OR_NULL, ACTED, "Zero(overlap=); absent: True"
    ),
    "prescale_gradients": Key(False, BOOL, ACTED, "Zero(predivide=)"),
    "communication_data_type": Key(None, DTYPE, ACTED, "Zero(reduce_dtype=)"),
    "gradient_predivide_factor": Key(
        1.0, number(0), REFUSED, "the sum is divided by the number of ranks, before or behind it"
    ),
    "gradient_allreduce_op": Key("mean", one_of("mean", "sum"), REFUSED, "the step takes the mean"),
    **_keys(
        NONE,
        "how the engine lays out and moves what it has",
        "zero_optimization.",
        contiguous_gradients=True,
        reduce_scatter=True,
        use_multi_rank_bucket_allreduce=True,
        allgather_partitions=True,
        compute_grad_norm=True,
        round_robin_gradients=False,
        parameter_alignment=False,
        load_from_fp32_weights=True,
        elastic_checkpoint=False,
        ignore_unused_parameters=True,
        legacy_stage1=False,
        sub_group_size=(1_000_000_000, _SIZE),
        log_trace_cache_warnings=False,
        enable_sanity_checks=False,
        save_muon_momentum_buffer_in_memory=False,
        cpu_offload_use_pin_memory=(None, BOOL_OR_NULL),
    ),
    **_keys(
        ENGINE,
        "of stage 3, which is fully_shard's here",
        "zero_optimization.",
        stage3_prefetch_bucket_size=(50_000_000, _SIZE),
        stage3_param_persistence_threshold=(100_000, _SIZE),
        stage3_model_persistence_threshold=(2**63 - 1, _SIZE),
        stage3_max_live_parameters=(1_000_000_000, _SIZE),
        stage3_max_reuse_distance=(1_000_000_000, _SIZE),
        stage3_gather_16bit_weights_on_model_save=False,
        stage3_gather_fp16_weights_on_model_save=False,
        stage3_module_granularity_threshold=(0, ANY),
        stage3_use_all_reduce_for_fetch_params=False,
        stage3_allgather_sequential=False,
        memory_efficient_linear=True,
        pipeline_loading_checkpoint=False,
        override_module_apply=True,
        leaf_module=_FREE,
    ),
    "zero_optimization.zero_hpz_partition_size": Key(
        1, _SIZE, REFUSED, "use fully_shard(reshard_after_forward=...)"
    ),
    **_keys(
        REFUSED,
        "other numbers would cross ranks",
        "zero_optimization.",
        zero_quantized_weights=False,
        zero_quantized_nontrainable_weights=False,
        zero_quantized_gradients=False,
    ),
    "zero_optimization.zenflow": Key(
        None, optional(BLOCK), REFUSED, "it steps with older gradients"
    ),
    "zero_optimization.mics_shard_size": Key(-1, ANY, REFUSED, "use fully_shard over two axes"),
    "zero_optimization.mics_hierarchical_params_gather": Key(False, BOOL, NONE, "of MiCS"),
    "zero_optimization.zeropp_loco_param": Key(
        None, ANY, REFUSED, "other numbers would cross ranks"
    ),
    "zero_optimization.cpu_offload": Key(
        None, BOOL_OR_NULL, ACTED, "as offload_optimizer with the device cpu"
    ),
    "zero_optimization.cpu_offload_param": Key(
        None, BOOL_OR_NULL, ACTED, "as offload_param with the device cpu"
    ),
}

_DEVICE = one_of("none", "cpu", "nvme")
_PATH = optional(TEXT)
_OFFLOAD = {
    "zero_optimization.offload_optimizer.device": Key(
        "none",
        _DEVICE,
        ACTED,
        "cpu: Place('host'), nvme: Place('disk'); Adam is DeepSpeedCPUAdam's",
    ),
    "zero_optimization.offload_optimizer.nvme_path": Key(None, _PATH, ACTED, "Place(path=)"),
    "zero_optimization.offload_optimizer.buffer_count": Key(4, _SIZE, ACTED, "Place(buffers=)"),
    "zero_optimization.offload_optimizer.ratio": Key(1.0, share(), ACTED, "Place(fraction=)"),
    **_keys(
        NONE,
        "how the engine moves states",
        "zero_optimization.offload_optimizer.",
        pin_memory=True,
        pipeline_read=False,
        pipeline_write=False,
        fast_init=False,
        super_offload=False,
        cpuadam_cores_perc=(0.8, number(0)),
    ),
    "zero_optimization.offload_param.device": Key(
        "none", _DEVICE, ACTED, "cpu: fully_shard(offload_policy=CPUOffloadPolicy()); nvme: refused"
    ),
    **_keys(
        NONE,
        "how the engine moves parameters",
        "zero_optimization.offload_param.",
        nvme_path=(None, _PATH),
        buffer_count=(5, _SIZE),
        buffer_size=(100_000_000, _SIZE),
        max_in_cpu=(1_000_000_000, _SIZE),
        pin_memory=True,
    ),
}
_AIO = {
    "queue_depth": Key(8, _COUNT, ACTED, "Place(threads=), times intra_op_parallelism"),
    "intra_op_parallelism": Key(1, _COUNT, ACTED, "Place(threads=), times queue_depth"),
    "block_size": Key(1048576, _COUNT, NONE, "windows are read and written whole"),
    "thread_count": Key(1, _COUNT, NONE, "DeepSpeed reads it no more"),
    "single_submit": Key(False, BOOL, NONE, "how operations are given to the kernel"),
    "overlap_events": Key(True, BOOL, NONE, "how operations are given to the kernel"),
    "use_gds": Key(False, BOOL, NONE, "states go by the host"),
}

_ENGINE = {
    "steps_per_print": Key(None, optional(_COUNT), ACTED, "step() of the result logs"),
    "wall_clock_breakdown": Key(False, BOOL, ACTED, "the log has the milliseconds of a step"),
    **_keys(
        ENGINE,
        "of the engine, the loop or the model",
        memory_breakdown=False,
        dump_state=False,
        disable_python_gc=False,
        disable_allgather=False,
        dataloader_drop_last=False,
        use_data_before_expert_parallelism=False,
        sparse_gradients=False,
        vocabulary_size=(None, ANY),
        log_level=(None, ANY),
        seq_parallel_communication_data_type=("fp32", DTYPE),
        activation_checkpointing=_FREE,
        checkpoint=_FREE,
        comms_logger=_FREE,
        tensorboard=_FREE,
        wandb=_FREE,
        csv_monitor=_FREE,
        comet=_FREE,
        flops_profiler=_FREE,
        autotuning=_FREE,
        hybrid_engine=_FREE,
        pipeline=_FREE,
        data_efficiency=_FREE,
        datastates=_FREE,
        compile=_FREE,
        timers=_FREE,
        nebula=_FREE,
        graph_harvesting=False,
    ),
    "sequence_parallel_size": Key(
        1, _COUNT, REFUSED, "give gradients that are the mean over all ranks"
    ),
    "tensor_parallel": Key(*_FREE, REFUSED, "use torch's tensor parallelism: DTensors are seen"),
    "expert_parallel": Key(*_FREE, REFUSED, "say it by layouts= of the optimizer"),
    **_keys(
        REFUSED,
        "it changes the model or its numbers",
        weight_quantization=_FREE,
        compression_training=_FREE,
        quantize_training=_FREE,
        progressive_layer_drop=_FREE,
        curriculum_learning=_FREE,
        sparse_attention=_FREE,
        eigenvalue=_FREE,
        elasticity=_FREE,
    ),
}

# By the path of each key, its parts with dots between.
KEYS: dict[str, Key] = {
    **_BATCHES,
    **_OPTIMIZER,
    **_FP16,
    **_PRECISION,
    **_ZERO,
    **_OFFLOAD,
    **{f"aio.{name}": key for name, key in _AIO.items()},
    **_ENGINE,
}

# Other places and names of the same: of DeepSpeed before, of the fields of its objects, and in
# Hugging Face's documentation.
_STAGE3 = "zero_optimization.stage3_"
_FIELDS = {name: name.replace("stage3_", "") for name in KEYS if name.startswith(_STAGE3)}
ALIASES = {
    "bfloat16": "bf16",
    "zero_optimization.aio": "aio",
    **{own: name for name, own in _FIELDS.items() if own not in KEYS},
}

BLOCKS = {name.rpartition(".")[0] for name in KEYS if "." in name}
BLOCKS |= {block.rpartition(".")[0] for block in BLOCKS if "." in block}
