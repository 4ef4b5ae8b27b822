# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the arguments of ColossalAI's booster plugins are here, and their loss scaler."""

from __future__ import annotations

import difflib
import math
import warnings

import torch
import torch.distributed as dist

from .binding.features import ClipByNorm, DynamicLossScale
from .ranks.layouts import check_rules
from .ranks.zero.settings import Zero
from .tensors.callers import level_of_caller

_INITIAL_SCALES = {
    "LowLevelZeroPlugin": 2.0**32,
    "GeminiPlugin": 2.0**16,
    "HybridParallelPlugin": 2.0**16,
    "MoeHybridParallelPlugin": 2.0**16,
}


class DynamicGradScaler(DynamicLossScale):
    """The loss scale of ``colossalai.amp.naive_amp.grad_scaler.DynamicGradScaler``, for
    the argument ``loss_scale`` of an optimizer.

    From the ``hysteresis``-th overflow on the scale is multiplied by ``backoff_factor``,
    down to ``min_scale``; after ``growth_interval`` steps in a row that were made, by
    ``growth_factor``, up to ``max_scale``, and overflows are counted anew. Gradients are
    divided by the scale that the loss had (ColossalAI changes it before).

    Raises ValueError for numbers out of range.
    """

    _fragment = "colossal_scaler"
    _hypers = {
        "growth_factor": "growth_factor",
        "backoff_factor": "backoff_factor",
        "growth_interval": "growth_interval",
        "min_scale": "_least",
        "max_scale": "_most",
        "hysteresis": "hysteresis",
    }
    _scalars = {"scale": "initial_scale"}

    def __init__(
        self,
        initial_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 1000,
        min_scale: float | None = None,
        max_scale: float | None = None,
        hysteresis: int = 2,
    ):
        self._set_numbers(
            initial_scale=initial_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            hysteresis=hysteresis,
        )
        if not growth_factor > 1:
            raise ValueError(f"growth_factor is {growth_factor}, expected more than 1")
        if not backoff_factor < 1:
            raise ValueError(f"backoff_factor is {backoff_factor}, expected less than 1")
        self.min_scale = min_scale
        self.max_scale = max_scale
        if not self._least <= initial_scale <= self._most:
            raise ValueError(
                f"initial_scale is {initial_scale}, expected one from min_scale {min_scale} "
                f"to max_scale {max_scale}"
            )

    @classmethod
    def of_plugin(
        cls,
        plugin: str,
        *,
        initial_scale: float | None = None,
        min_scale: float | None = 1,
        growth_factor: float = 2,
        backoff_factor: float = 0.5,
        growth_interval: int = 1000,
        hysteresis: int = 2,
        max_scale: float | None = 2**32,
    ) -> DynamicGradScaler:
        """With the arguments and the defaults of a booster plugin, as "LowLevelZeroPlugin",
        "GeminiPlugin", "HybridParallelPlugin" or "MoeHybridParallelPlugin". They bound the scale
        from 1 to 2**32; the first begins at 2**32, the others at 2**16. ValueError for another
        plugin and for numbers out of range."""
        if plugin not in _INITIAL_SCALES:
            raise ValueError(f"plugin is {plugin!r}, expected {', '.join(_INITIAL_SCALES)}")
        first = _INITIAL_SCALES[plugin] if initial_scale is None else initial_scale
        own = (first, growth_factor, backoff_factor, growth_interval, min_scale, max_scale)
        return cls(*own, hysteresis)

    @property
    def _least(self) -> float:
        return self.min_scale or 0.0

    @property
    def _most(self) -> float:
        return self.max_scale or math.inf


# --- Arguments of plugins -------------------------------------------------------------------------

_HYBRID = (
    "tp_size pp_size sp_size precision zero_stage enable_all_optimization "
    "enable_fused_normalization enable_flash_attention enable_jit_fused "
    "enable_sequence_parallelism sequence_parallelism_mode parallel_output num_microbatches "
    "microbatch_size initial_scale min_scale growth_factor backoff_factor growth_interval "
    "hysteresis max_scale max_norm broadcast_buffers ddp_bucket_cap_mb find_unused_parameters "
    "check_reduction gradient_as_bucket_view static_graph zero_bucket_size_in_m cpu_offload "
    "communication_dtype overlap_communication custom_policy pp_style num_model_chunks "
    "scheduler_nodes num_layers_per_stage gradient_checkpoint_config enable_metadata_cache "
    "make_vocab_size_divisible_by overlap_p2p overlap_allgather fp8_communication use_fp8"
)
PLUGINS = {
    "TorchDDPPlugin": "broadcast_buffers bucket_cap_mb find_unused_parameters check_reduction "
    "gradient_as_bucket_view static_graph fp8_communication",
    "LowLevelZeroPlugin": "stage precision initial_scale min_scale growth_factor backoff_factor "
    "growth_interval hysteresis max_scale max_norm norm_type reduce_bucket_size_in_m "
    "communication_dtype overlap_communication overlap_allgather cpu_offload master_weights "
    "verbose cast_inputs fp8_communication use_fp8 extra_dp_size",
    "GeminiPlugin": "chunk_config_dict chunk_init_device placement_policy "
    "enable_gradient_accumulation max_prefetch shard_param_frac offload_optim_frac "
    "offload_param_frac warmup_non_model_data_ratio steady_cuda_cap_ratio precision "
    "master_weights pin_memory force_outputs_fp32 strict_ddp_mode search_range_m hidden_dim "
    "min_chunk_size_m memstats gpu_margin_mem_ratio initial_scale min_scale growth_factor "
    "backoff_factor growth_interval hysteresis max_scale max_norm norm_type tp_size extra_dp_size "
    "enable_all_optimization enable_fused_normalization enable_flash_attention "
    "enable_sequence_parallelism enable_jit_fused enable_async_reduce use_fp8 verbose "
    "fp8_communication",
    "HybridParallelPlugin": f"{_HYBRID} dp_outside inner_ring_size",
    "MoeHybridParallelPlugin": f"{_HYBRID} ep_size moe_dp_outside",
}
_SCALE = (
    "initial_scale", "min_scale", "growth_factor", "backoff_factor", "growth_interval",
    "hysteresis", "max_scale",
)  # fmt: skip
# Defaults of what makes a difference here; of what is refused; of the plugin's.
_ACTED = {
    "stage": 1, "zero_stage": 0, "precision": "fp16", "initial_scale": 2.0**16, "min_scale": 1,
    "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 1000, "hysteresis": 2,
    "max_scale": 2.0**32, "max_norm": 0.0, "reduce_bucket_size_in_m": 12,
    "zero_bucket_size_in_m": 12, "communication_dtype": None, "overlap_communication": True,
    "master_weights": True, "tp_size": 1, "pp_size": 1, "sp_size": None, "ep_size": 1,
}  # fmt: skip
_REFUSED = {
    "norm_type": (2.0, "the norm is the Euclidean one"),
    "cpu_offload": (False, "states lie where the parameters do"),
    "offload_optim_frac": (0.0, "use fully_shard(offload_policy=CPUOffloadPolicy())"),
    "offload_param_frac": (0.0, "use fully_shard(offload_policy=CPUOffloadPolicy())"),
    "shard_param_frac": (1.0, "fully_shard shares all of a parameter"),
    "extra_dp_size": (1, "give a mesh of two axes to fully_shard, or process_group"),
    "fp8_communication": (False, "other numbers would cross ranks"),
    "use_fp8": (False, "it changes the model's numbers"),
}
_OF_PLUGIN = {
    "overlap_allgather": False, "verbose": False, "cast_inputs": True,
    "broadcast_buffers": True, "bucket_cap_mb": 25, "ddp_bucket_cap_mb": 25,
    "find_unused_parameters": False, "check_reduction": False, "gradient_as_bucket_view": False,
    "static_graph": False, "chunk_config_dict": None, "chunk_init_device": None,
    "placement_policy": "static", "enable_gradient_accumulation": False, "max_prefetch": 0,
    "warmup_non_model_data_ratio": 0.8, "steady_cuda_cap_ratio": 0.9, "pin_memory": False,
    "force_outputs_fp32": False, "strict_ddp_mode": False, "search_range_m": 32,
    "hidden_dim": None, "min_chunk_size_m": 32, "memstats": None, "gpu_margin_mem_ratio": 0.0,
    "enable_all_optimization": False, "enable_fused_normalization": False,
    "enable_flash_attention": False, "enable_sequence_parallelism": False,
    "enable_jit_fused": False, "enable_async_reduce": True, "sequence_parallelism_mode": None,
    "parallel_output": True, "num_microbatches": None, "microbatch_size": None,
    "custom_policy": None, "pp_style": "1f1b", "num_model_chunks": 1, "scheduler_nodes": None,
    "num_layers_per_stage": None, "gradient_checkpoint_config": None,
    "enable_metadata_cache": True, "make_vocab_size_divisible_by": 64, "dp_outside": True,
    "moe_dp_outside": True, "overlap_p2p": True, "inner_ring_size": None,
}  # fmt: skip
_OTHER = {
    "LowLevelZeroPlugin": {"initial_scale": _INITIAL_SCALES["LowLevelZeroPlugin"]},
    "MoeHybridParallelPlugin": {"overlap_communication": False},
}
_SIZES = {"fp16": 2, "bf16": 2, "fp32": 4}


def defaults_of(plugin: str) -> dict[str, object]:
    """The arguments of a plugin. ValueError for another."""
    if plugin not in PLUGINS:
        raise ValueError(f"plugin is {plugin!r}, expected {', '.join(PLUGINS)}")
    refused = {name: default for name, (default, _) in _REFUSED.items()}
    known = {**_ACTED, **refused, **_OF_PLUGIN, **_OTHER.get(plugin, {})}
    return {name: known[name] for name in PLUGINS[plugin].split()}


def configure(plugin: str, *, process_group=None, layouts=None, **arguments) -> dict[str, object]:
    """The arguments of an optimizer that do what a booster plugin does with one, from the plugin's
    arguments and defaults::

        model.bfloat16()
        opt = HybridAdam(model.parameters(), **configure("LowLevelZeroPlugin", stage=2,
                                                         precision="bf16", max_norm=1.0))

    ``precision`` becomes masters and, with "fp16", the loss scale; ``max_norm`` clipping; ``stage``
    and ``zero_stage`` ZeRO, where there are ranks. The model is cast by its owner, wrapped in
    ``DistributedDataParallel`` without ZeRO, and for "GeminiPlugin" called ``fully_shard`` for.

    Args:
        plugin: "LowLevelZeroPlugin", "GeminiPlugin", "HybridParallelPlugin",
            "MoeHybridParallelPlugin" or "TorchDDPPlugin".
        process_group: of the replicas, over which ZeRO shares states; needed beside ``tp_size``,
            ``pp_size``, ``sp_size`` and ``ep_size`` above 1. With experts it is that of one
            expert's replicas: layouts of all else are ``grad="partial"`` over the experts' axis,
            with its size as ``grad_divisor``, and experts ``"distinct"``.
        layouts: what ranks have of plain tensors, as for :class:`stepc.torch.Optimizer`, or ``()``
            where all parameters are DTensors. Needed beside these sizes above 1 for clipping, for
            ZeRO and "fp16", since norms and overflows are of all ranks. Statistics are, too: an
            optimizer that has any, as ``Lamb``, needs them in any case.
        arguments: the plugin's. One warning names those that are its own.

    Raises TypeError for an argument that the plugin does not have, and ValueError for what would
    change the mathematics or is out of range, and where ``layouts`` are missing.
    """
    known = defaults_of(plugin)
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"{plugin} has no argument {name!r}"
                            + (f", the nearest is {near[0]!r}" if near else ""))  # fmt: skip
    given = {**known, **arguments}
    for name, (default, why) in _REFUSED.items():
        if given.get(name, default) != default:
            raise ValueError(f"{name} is {given[name]!r}, expected {default!r}: {why}")
    made = _precision(plugin, given) if "precision" in known else {}
    if _max_norm(given) > 0:
        made["clip"] = ClipByNorm(given["max_norm"])
    _check_stage(given)
    made |= _layouts(given, layouts) | _zero(given, process_group)
    own = [n for n in arguments if n in _OF_PLUGIN and given[n] != known[n]]
    if own:
        warnings.warn(
            f"stepc: these arguments are for {plugin} itself, and what they say is yours to do: "
            f"{', '.join(own)}",
            RuntimeWarning,
            stacklevel=level_of_caller(),
        )
    return made


def _max_norm(given: dict) -> float:
    """ValueError for what is no number."""
    norm = given.get("max_norm", 0)
    if isinstance(norm, bool) or not isinstance(norm, (int, float)):
        raise ValueError(f"max_norm is {norm!r}, expected a number")
    return norm


def _axes(given: dict) -> list[str]:
    """The sizes above 1, over which ranks have other tensors, or other parts."""
    return [n for n in ("tp_size", "pp_size", "sp_size", "ep_size") if (given.get(n) or 1) > 1]


def _layouts(given: dict, layouts) -> dict[str, object]:
    """The argument, if it has any. ValueError where each rank would take norms, overflows and
    shares of its own tensors alone; TypeError for what is none."""
    rules, axes = check_rules(layouts), _axes(given)
    if layouts is None and axes:
        for name, none in (("stage", 0), ("zero_stage", 0), ("max_norm", 0), ("precision", None)):
            value = given.get(name, none)
            if value == "fp16" if name == "precision" else value > 0:
                raise ValueError(
                    f"{axes[0]} is {given[axes[0]]} and {name} is {value!r}: give layouts=, which "
                    "say what ranks have, as the norm, overflows and statistics are of all of "
                    "them; layouts=() says that parameters are DTensors"
                )
    return {"layouts": rules} if rules else {}


def _precision(plugin: str, given: dict) -> dict[str, object]:
    """Masters and the loss scale; ValueError."""
    precision = given["precision"]
    if precision not in _SIZES:
        raise ValueError(f"precision is {precision!r}, expected {', '.join(map(repr, _SIZES))}")
    made = {}
    if precision == "fp16":
        scale = {name: given[name] for name in _SCALE}
        made["loss_scale"] = DynamicGradScaler.of_plugin(plugin, **scale)
    if precision != "fp32":  # None is said, so that no class warns of their absence
        kept = "f32" if precision == "fp16" else "remainder"
        made["master"] = kept if given.get("master_weights", True) else None
    return made


def _check_stage(given: dict) -> None:
    """ValueError for a stage that the plugin does not have."""
    name, least = ("stage", 1) if "stage" in given else ("zero_stage", 0)
    stage = given.get(name, 0)
    if type(stage) is not int or not least <= stage <= 2:
        raise ValueError(f"{name} is {stage!r}, expected {least} to 2: 3 is torch's fully_shard")


def _zero(given: dict, group) -> dict[str, Zero]:
    """ZeRO of the stage, where there is more than one rank; ValueError."""
    stage = given.get("stage", given.get("zero_stage", 0))
    if stage == 0 or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return {}
    if (axes := _axes(given)) and group is None:
        raise ValueError(f"{axes[0]} is {given[axes[0]]}, and process_group is None, expected that "
                         "of the replicas, over which ZeRO shares states")  # fmt: skip
    millions = given.get("reduce_bucket_size_in_m", given.get("zero_bucket_size_in_m"))
    dtype: torch.dtype | None = given["communication_dtype"]
    size = _SIZES[given["precision"]] if dtype is None else dtype.itemsize
    return {
        "zero": Zero(
            stage,
            gradients="local",
            process_group=group,
            reduce_bucket_bytes=millions * 2**20 * size,
            reduce_dtype=dtype,
            overlap=given["overlap_communication"],
        )
    }
