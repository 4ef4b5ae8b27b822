# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The complete configuration files of Hugging Face's page on DeepSpeed, and the training arguments
that "auto" is resolved from."""

from types import SimpleNamespace

_FP16 = {
    "enabled": "auto",
    "loss_scale": 0,
    "loss_scale_window": 1000,
    "initial_scale_power": 16,
    "hysteresis": 2,
    "min_loss_scale": 1,
}
_AUTO_OPTIMIZER = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
}
_AUTO_SCHEDULER = {
    "type": "WarmupLR",
    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
}
_AUTO_LOOP = {
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
_OPTIMIZER = {
    "type": "AdamW",
    "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7},
}
_SCHEDULER = {
    "type": "WarmupLR",
    "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-5, "warmup_num_steps": 500},
}
_TO_CPU = {"device": "cpu", "pin_memory": True}
_ZERO2 = {
    "stage": 2,
    "offload_optimizer": _TO_CPU,
    "allgather_partitions": True,
    "allgather_bucket_size": 2e8,
    "overlap_comm": True,
    "reduce_scatter": True,
    "reduce_bucket_size": 2e8,
    "contiguous_gradients": True,
}
_ZERO3 = {
    "stage": 3,
    "offload_optimizer": _TO_CPU,
    "offload_param": _TO_CPU,
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}

FILES = {
    "ZeRO-2, auto": {
        "fp16": _FP16,
        "optimizer": _AUTO_OPTIMIZER,
        "scheduler": _AUTO_SCHEDULER,
        "zero_optimization": _ZERO2,
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    },
    "ZeRO-2, by hand": {
        "fp16": {**_FP16, "enabled": True},
        "optimizer": _OPTIMIZER,
        "scheduler": _SCHEDULER,
        "zero_optimization": _ZERO2,
        "steps_per_print": 2000,
        "wall_clock_breakdown": False,
    },
    "ZeRO-3, auto": {
        "fp16": _FP16,
        "optimizer": _AUTO_OPTIMIZER,
        "scheduler": _AUTO_SCHEDULER,
        "zero_optimization": _ZERO3,
        **_AUTO_LOOP,
    },
    "ZeRO-3, by hand": {
        "fp16": {**_FP16, "enabled": True},
        "optimizer": _OPTIMIZER,
        "scheduler": _SCHEDULER,
        "zero_optimization": {
            **_ZERO3,
            "reduce_bucket_size": 1e6,
            "stage3_prefetch_bucket_size": 0.94e6,
            "stage3_param_persistence_threshold": 1e4,
        },
        "steps_per_print": 2000,
        "wall_clock_breakdown": False,
    },
    "NVMe": {
        "fp16": _FP16,
        "optimizer": _AUTO_OPTIMIZER,
        "scheduler": _AUTO_SCHEDULER,
        "zero_optimization": {
            **_ZERO3,
            "offload_optimizer": {
                "device": "nvme",
                "nvme_path": "/local_nvme",
                "pin_memory": True,
                "buffer_count": 4,
                "fast_init": False,
            },
            "offload_param": {
                "device": "nvme",
                "nvme_path": "/local_nvme",
                "pin_memory": True,
                "buffer_count": 5,
                "buffer_size": 1e8,
                "max_in_cpu": 1e9,
            },
            "aio": {
                "block_size": 262144,
                "queue_depth": 32,
                "thread_count": 1,
                "single_submit": False,
                "overlap_events": True,
            },
        },
        **_AUTO_LOOP,
    },
}


def arguments(**changed):
    """What from_config reads of transformers.TrainingArguments."""
    own = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5,
        "learning_rate": 3e-3, "adam_beta1": 0.9, "adam_beta2": 0.99, "adam_epsilon": 1e-7,
        "weight_decay": 0.01, "warmup_steps": 3, "max_steps": 20, "fp16": True, "bf16": False,
    }  # fmt: skip
    return SimpleNamespace(**{**own, **changed})
