# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
""" "auto", as transformers' Trainer resolves it from its arguments
(``transformers.integrations.deepspeed.HfTrainerDeepSpeedConfig``), and what contradicts them."""

from __future__ import annotations

from dataclasses import dataclass

from .reading import AUTO

_BY_HIDDEN_SIZE = {
    "zero_optimization.reduce_bucket_size": lambda h: h * h,
    "zero_optimization.stage3_prefetch_bucket_size": lambda h: int(0.9 * h * h),
    "zero_optimization.stage3_param_persistence_threshold": lambda h: 10 * h,
}
_TOTAL = "scheduler.params.total_num_steps"
_WARMUP = "scheduler.params.warmup_num_steps"


def _either(arguments, *names: str) -> bool:
    return any(bool(getattr(arguments, name, False)) for name in names)


def _rows(arguments, world: int) -> list[tuple[str, object, str | None]]:
    """The key, the Trainer's value, and its name; without one it is filled in only."""
    micro, passes = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    rate = arguments.learning_rate
    return [
        ("train_micro_batch_size_per_gpu", micro, "per_device_train_batch_size"),
        ("gradient_accumulation_steps", passes, "gradient_accumulation_steps"),
        ("train_batch_size", world * micro * passes, "train_batch_size (calculated)"),
        ("gradient_clipping", arguments.max_grad_norm, "max_grad_norm"),
        ("optimizer.params.lr", rate, "learning_rate"),
        (
            "optimizer.params.betas",
            [arguments.adam_beta1, arguments.adam_beta2],
            "adam_beta1+adam_beta2",
        ),
        ("optimizer.params.eps", arguments.adam_epsilon, "adam_epsilon"),
        ("optimizer.params.weight_decay", arguments.weight_decay, "weight_decay"),
        ("scheduler.params.warmup_min_lr", 0, None),
        ("scheduler.params.warmup_max_lr", rate, "learning_rate"),
        ("fp16.enabled", _either(arguments, "fp16", "fp16_full_eval"), "fp16|fp16_full_eval"),
        ("bf16.enabled", _either(arguments, "bf16", "bf16_full_eval"), "bf16|bf16_full_eval"),
        ("amp.enabled", False, None),
        ("amp.opt_level", "O1", None),
    ]


def _of_steps(arguments, steps: int | None) -> list[tuple[str, object, str | None]]:
    """What follows from the number of training steps, and the warm-up where it does not."""
    rows = []
    if steps is not None:
        rows.append((_TOTAL, steps, "num_training_steps (calculated)"))
    if steps is not None or not _is_share(arguments):
        of = getattr(arguments, "get_warmup_steps", lambda steps: arguments.warmup_steps)
        rows.append((_WARMUP, max(1, of(steps or 1)), "warmup_steps"))
    return rows


def _is_share(arguments) -> bool:
    """Whether the warm-up is a share of the training steps."""
    of_steps = getattr(arguments, "warmup_steps", 0)
    return bool(getattr(arguments, "warmup_ratio", None)) or 0 < of_steps < 1


def hidden_size_of(model) -> int | None:
    """As the Trainer looks for it in ``model.config``."""
    config = getattr(model, "config", None)
    for own in (config, getattr(config, "text_config", None)):
        if hasattr(own, "hidden_size"):
            return own.hidden_size
        if hasattr(own, "hidden_sizes"):
            return max(own.hidden_sizes)
    return None


@dataclass
class _Filling:
    config: dict

    def __post_init__(self):
        self.mismatches: list[str] = []

    def owner(self, path: str) -> dict | None:
        """The block of the key, where the file has it."""
        own = self.config
        for part in path.split(".")[:-1]:
            own = own.get(part) if isinstance(own, dict) else None
        return own if isinstance(own, dict) else None

    def is_auto(self, path: str) -> bool:
        owner = self.owner(path)
        return owner is not None and owner.get(path.rpartition(".")[2]) == AUTO

    def fill(self, path: str, value, name: str | None) -> None:
        owner, key = self.owner(path), path.rpartition(".")[2]
        if self.is_auto(path):
            owner[key] = value
        elif name is not None and owner is not None:
            own = owner.get(key)
            if own is not None and own != value:
                self.mismatches.append(f"- ds {path}={own} vs hf {name}={value}")


def resolve(config: dict, arguments, model, steps: int | None, world: int) -> None:
    """Fills in every "auto" of the configuration that the Trainer does. ValueError, in its words,
    with all that contradicts the arguments; for a model without ``hidden_size``, and where the
    number of training steps is not known."""
    filling = _Filling(config)
    for row in _rows(arguments, world):
        filling.fill(*row)
    sizes = [path for path in _BY_HIDDEN_SIZE if filling.is_auto(path)]
    hidden = hidden_size_of(model)
    if sizes and hidden is None:
        raise ValueError(
            "The model's config file has neither `hidden_size` nor `hidden_sizes` entry, "
            "therefore it's not possible to automatically fill out the following `auto` entries "
            f"in the DeepSpeed config file: {sizes}. You can fix that by replacing `auto` values "
            "for these keys with an integer value of your choice."
        )
    for path in sizes:
        filling.fill(path, _BY_HIDDEN_SIZE[path](hidden), None)
    steps = steps or (arguments.max_steps if getattr(arguments, "max_steps", -1) > 0 else None)
    for row in _of_steps(arguments, steps):
        filling.fill(*row)
    left = [path for path in (_TOTAL, _WARMUP) if filling.is_auto(path)]
    if left:
        raise ValueError(
            f'{" and ".join(map(repr, left))}: "auto" needs the number of training steps: give '
            "num_training_steps, or max_steps of the training arguments"
        )
    if filling.mismatches:
        lines = "\n".join(filling.mismatches)
        raise ValueError(
            "Please correct the following DeepSpeed config values that mismatch TrainingArguments"
            f" values:\n{lines}\nThe easiest method is to set these DeepSpeed config values to "
            "'auto'."
        )
