# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which class of ours is in the place of which of another library, and what is said of each
argument that ours does not have, or has with another default. docs/arguments.md is made of it
(tools/docs/arguments_table.py); it needs no torch."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

# Where a library's classes are ours by the same name, below ``stepc.torch``.
MODULES = {
    "torch.optim": ("",),
    "transformers": ("hf",),
    "came_pytorch": ("came",),
    "lomo_optim": ("lomo",),
    "pytorch_optimizer": (),
    "deepspeed": ("deepspeed", "schedules"),
    "colossalai": ("colossal", "schedules"),
    "bitsandbytes": ("bitsandbytes",),
    "torchao": (),
    "apex": ("apex",),
    "galore_torch": ("",),
    "apollo_torch": ("",),
    "dion": ("",),
    "muon": ("muon",),
    "moonlight": ("moonlight",),
    "normuon": ("",),
    "soap": ("",),
    "sophia": ("",),
    "distributed_shampoo": (),
}
# Others: theirs, and ours below ``stepc.torch``.
OTHERS = {
    "deepspeed": {
        "DeepSpeedCPUAdagrad": "Adagrad",
        "DeepSpeedCPULion": "Lion",
        "FusedLion": "Lion",
        "Muon": "muon.Muon",
        "SingleDeviceMuon": "muon.SingleDeviceMuon",
        "MuonWithAuxAdam": "muon.MuonWithAuxAdam",
        "SingleDeviceMuonWithAuxAdam": "muon.SingleDeviceMuonWithAuxAdam",
    },
    "colossalai": {
        "GaLoreAdamW8bit": "colossal.DistGaloreAwamW",
        "FusedSGD": "SGD",
        "Lars": "LARS",
    },
    "torchao": {
        **dict.fromkeys(("Adam8bit", "Adam4bit", "AdamFp8"), "Adam"),
        **dict.fromkeys(("AdamW8bit", "AdamW4bit", "AdamWFp8"), "AdamW"),
    },
    "apex": {
        "FusedAdam": "deepspeed.FusedAdam",
        "FusedAdagrad": "Adagrad",
        "FusedSGD": "SGD",
        "FusedMixedPrecisionLamb": "apex.FusedLAMB",
    },
    "galore_torch": {"GaLoreAdamW8bit": "colossal.DistGaloreAwamW"},
    "normuon": {"SingleDeviceNorMuon": "NorMuon"},
    "distributed_shampoo": {"DistributedShampoo": "Shampoo"},
    "pytorch_optimizer": {
        **{name: name for name in ("LARS", "Lion", "NorMuon", "SM3", "SOAP")},
        "APOLLO": "APOLLOAdamW",
        "AdaFactor": "hf.Adafactor",
        "AdaLOMO": "lomo.AdaLomo",
        "CAME": "came.CAME",
        "GaLore": "GaLoreAdamW",
        "LOMO": "lomo.Lomo",
        "Lamb": "apex.FusedLAMB",
    },
}


class Said(NamedTuple):
    """Of arguments of classes; ``C.m`` are those of the method ``m``. "*" of arguments: there is
    no such class here."""

    origin: str  # the library
    names: str  # patterns
    arguments: str
    here: str

    def is_of(self, library: str, name: str, argument: str) -> bool:
        """Whether it says something of that argument."""
        own = any(fnmatchcase(name, pattern) for pattern in self.names.split())
        return own and self.origin == library and argument in self.arguments.split()


_OWN = "a definition of your own, by `stepc.torch.Optimizer`"
_OF_OLD = "none, and refused there: `.grad` is stepped"
_DECAYS = "the decay is as the original of the algorithm has it"
SAID = [
    Said(*row)
    for row in (
        ("torch.optim", "LBFGS SparseAdam", "*", "none"),
        ("transformers", "LayerWiseDummyOptimizer", "*",
         "none needed: `fused_backward=True` of every class steps in the backward pass"),
        ("lomo_optim", "Lomo", "loss_scale_args",
         "not used: its dynamic scale for losses in float16 is `loss_scale=2.0**10` here, which "
         "stays as it is"),
        # --- DeepSpeed
        ("deepspeed", "DeepSpeedCPUAdagrad DeepSpeedCPULion", "model_params", "`params`"),
        ("deepspeed", "DeepSpeedCPUAdagrad", "amsgrad", "none: ignored there"),
        ("deepspeed", "DeepSpeedCPUAdagrad DeepSpeedCPULion", "fp32_optimizer_states",
         "True; False is `state_dtype=torch.bfloat16`"),
        ("deepspeed", "DeepSpeedCPULion FusedLion", "lr betas",
         "`Lion` has the paper's, 1e-4 and (0.9, 0.99); `from_config` takes DeepSpeed's"),
        ("deepspeed", "FusedLion", "set_grad_none", "`zero_grad(set_to_none=)`"),
        ("deepspeed", "FusedAdam.step FusedLion.step",
         "grads output_params scale grad_norms", _OF_OLD),
        ("deepspeed", "FusedAdam.step FusedLion.step", "grad_scaler",
         "`scaler.step(opt)`, or `loss_scale=`"),
        ("deepspeed", "FusedLamb.step", "grads output_params scale grad_norms",
         "`.grad`, `param_copy=`, `loss_scale=` and `clip=` of the constructor"),
        ("deepspeed", "DynamicLossScaler",
         "init_scale scale_window min_scale delayed_shift consecutive_hysteresis",
         "have defaults here"),
        ("deepspeed", "DynamicLossScaler", "dtype", "none: it is for a message"),
        ("deepspeed", "Muon SingleDeviceMuon", "ns_method",
         'none: "gram" and "standard" are one product, in float32 here'),
        # --- ColossalAI
        ("colossalai", "*Adam.step", "div_scale",
         "`loss_scale=` of the constructor, or `loss_scale=DynamicGradScaler()`"),
        ("colossalai", "FusedAdam.step", "grads output_params scale grad_norms", _OF_OLD),
        ("colossalai", "Dist*.setup_distributed",
         "shard_to_working_param padding_map is_zero use_zero",
         "None by default: as the map says"),
        ("colossalai", "DynamicGradScaler", "verbose",
         "none: `last_step.loss_scale` has the scale of each step"),
        ("colossalai", "FusedSGD", "lr", "has a default here"),
        ("colossalai", "FusedSGD", "wd_after_momentum", "none: the decay is in the momentum"),
        ("colossalai", "Lars", "momentum", "0.9 by default"),
        ("colossalai", "Lars", "eeta epsilon",
         "`trust_coefficient`, `eps`; gradients and ratios are not cut off"),
        # --- bitsandbytes, torchao
        ("bitsandbytes", "LAMB LAMB8bit LAMB32bit LARS LARS8bit LARS32bit", "*",
         "none: `apex.FusedLAMB`, `stepc.torch.LARS`"),
        ("bitsandbytes", "AdEMAMix* PagedAdEMAMix*", "*", f"none: {_OWN}"),
        ("torchao", "Adam*", "block_size",
         '`state_dtype="q8"`, and `"f8_e4m3"` of `AdamFp8`, have blocks of 64 of a row of the '
         'whole parameter; 4 bits are `"q4"`'),
        ("torchao", "Adam*", "bf16_stochastic_round", '`rounding="stochastic"`'),
        ("torchao", "CPUOffloadOptimizer", "*",
         '`place=stepc.torch.Place("host")`: the device steps states in the host\'s memory'),
        # --- apex
        ("apex", "FusedAdagrad FusedSGD", "set_grad_none", "`zero_grad(set_to_none=)`"),
        ("apex", "FusedAdagrad", "adagrad_w_mode", "none: the decay is in the gradient"),
        ("apex", "FusedAdam", "capturable",
         "none needed: steps are captured as they are"),
        ("apex", "FusedAdam", "master_weights", '`master="f32"`'),
        ("apex", "FusedAdam.step", "grads output_params scale grad_norms", _OF_OLD),
        ("apex", "FusedAdam.step FusedMixedPrecisionLamb.step", "grad_scaler",
         "`scaler.step(opt)`, or `loss_scale=`"),
        ("apex", "FusedMixedPrecisionLamb", "step", "each parameter has its count, saved with it"),
        ("apex", "FusedMixedPrecisionLamb", "reduced_precision_dtype",
         '`master="f32"` of parameters in that dtype'),
        ("apex", "FusedSGD", "lr", "has a default here"),
        ("apex", "FusedSGD", "wd_after_momentum", "none: the decay is in the momentum"),
        ("apex", "FusedSGD", "materialize_master_grads", "none: masters have no gradients"),
        ("apex", "FusedNovoGrad", "*", f"none: {_OWN}"),
        # --- Repositories of papers
        ("galore_torch", "GaLoreAdamW8bit", "lr", "1e-2 by default, as ColossalAI's"),
        ("galore_torch", "GaLoreAdamW8bit", "amsgrad", "none: ignored there"),
        ("galore_torch", "GaLoreAdamW8bit", "optim_bits", "`nbits`; 8 in any case there"),
        ("apollo_torch", "QAPOLLOAdamW", "*",
         'none: `stepc.torch.APOLLOAdamW` with `state_dtype="q8"`'),
        ("dion", "Dion",
         "replicate_mesh outer_shard_mesh inner_shard_mesh replicate_mesh_grad_sync",
         "none: DTensors are seen, `zero=` is for replicas; gradients are the mean over ranks"),
        ("dion", "Dion", "power_iters", "1"),
        ("dion", "Dion", "qr_method cqr_warmup_steps rcqr_oversample",
         "none: one QR decomposition, that of Householder"),
        ("dion", "Dion", "mixed_precision_config", "`state_dtype=`"),
        ("normuon", "NorMuonWithAuxAdam SingleDeviceNorMuonWithAuxAdam", "*",
         "two optimizers: `stepc.torch.NorMuon` and `stepc.torch.AdamW`"),
        ("distributed_shampoo", "DistributedShampoo", "weight_decay_type",
         '"decoupled", "l2", or theirs'),
        ("distributed_shampoo", "DistributedShampoo",
         "iterate_averaging_config grafting_config preconditioner_config",
         "[plain arguments](coming-from.md#distributed-shampoo)"),
        ("distributed_shampoo", "DistributedShampoo",
         "use_pin_memory shampoo_pt2_compile_config shampoo_runtime_config concurrency_config",
         "none: how their code runs"),
        ("distributed_shampoo", "DistributedShampoo", "distributed_config",
         "`target_parameter_dimensionality=`; DTensors are seen, and `zero=` is for replicas"),
        # --- pytorch_optimizer
        ("pytorch_optimizer", "APOLLO AdaFactor CAME Lamb Lion NorMuon",
         "weight_decouple fixed_decay", _DECAYS),
        ("pytorch_optimizer", "APOLLO AdaFactor CAME GaLore LOMO Lamb NorMuon SOAP",
         "maximize", "none: give the negative loss"),
        ("pytorch_optimizer", "APOLLO AdaFactor CAME GaLore Lamb Lion NorMuon", "foreach",
         "none: it would make no difference"),
        ("pytorch_optimizer", "APOLLO AdaFactor CAME Lamb", "lr weight_decay",
         "defaults of the original: `apollo_torch`, transformers, `came_pytorch`, apex"),
        ("pytorch_optimizer", "APOLLO", "scale_type",
         '"channel" or "tensor" of a group, as in `apollo_torch`'),
        ("pytorch_optimizer", "AdaFactor", "betas", "`beta1`, None by default"),
        ("pytorch_optimizer", "AdaFactor CAME AdaLOMO", "eps1 eps2", "`eps=(eps1, eps2)`"),
        ("pytorch_optimizer", "AdaFactor", "momentum_dtype", "`state_dtype=`"),
        ("pytorch_optimizer", "AdaFactor CAME", "ams_bound", "none"),
        ("pytorch_optimizer", "Lamb", "rectify degenerated_to_sgd n_sma_threshold adam pre_norm",
         "none; `adam` has `colossal.Lamb`"),
        ("pytorch_optimizer", "NorMuon", "ns_steps ns_coeffs eps", "the original's: 5 steps"),
        ("pytorch_optimizer", "NorMuon", "update_scale use_adjusted_lr",
         "none: the update is scaled as in the original"),
        ("pytorch_optimizer", "NorMuon", "adamw_lr adamw_betas adamw_wd adamw_eps",
         "a `stepc.torch.AdamW` beside it"),
        ("pytorch_optimizer", "SOAP", "shampoo_beta", "-1 in place of None"),
        ("pytorch_optimizer", "SOAP", "max_precondition_dim normalize_gradient",
         "`max_precond_dim`, `normalize_grads`"),
        ("pytorch_optimizer", "*", "*",
         f"others: torch's names have torch's arguments; `DAdaptAdam`, `DAdaptSGD` are definitions "
         f"of the zoo, `dadapt_adam` and `dadapt_sgd`; {_OWN}"),
    )
]  # fmt: skip
