# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What DeepSpeed's ZeRO does to an optimizer and what it saves, in one process: written from its
sources (runtime/zero/stage_1_and_2.py, stage3.py, runtime/engine.py of 0.19), with nothing of the
code that reads it."""

import contextlib
import dataclasses
import enum
import math
import sys
import types
from collections import OrderedDict
from pathlib import Path

import torch

_HOMES = {
    "fragment_address": "deepspeed.utils.tensor_fragment",
    "ZeroStageEnum": "deepspeed.runtime.zero.config",
    "LossScaler": "deepspeed.runtime.fp16.loss_scaler",
    "DynamicLossScaler": "deepspeed.runtime.fp16.loss_scaler",
}


@dataclasses.dataclass
class fragment_address:
    numel: int
    start: int


class ZeroStageEnum(int, enum.Enum):
    optimizer_states = 1
    gradients = 2
    weights = 3


class LossScaler:
    def __init__(self):
        self.cur_scale, self.dynamic = 1.0, False


class DynamicLossScaler:
    """As runtime/fp16/loss_scaler.py, ``update_scale``."""

    def __init__(self, scale, window, shift, consecutive):
        self.cur_scale, self.cur_iter, self.last_overflow_iter = scale, 0, -1
        self.scale_factor, self.scale_window, self.min_scale = 2.0, window, 1.0
        self.delayed_shift = self.cur_hysteresis = shift
        self.consecutive_hysteresis, self.dynamic = consecutive, True

    def update_scale(self, overflow):
        if overflow:
            if self.delayed_shift == 1 or self.cur_hysteresis == 1:
                self.cur_scale = max(self.cur_scale / self.scale_factor, self.min_scale)
            else:
                self.cur_hysteresis -= 1
            self.last_overflow_iter = self.cur_iter
        else:
            if self.consecutive_hysteresis:
                self.cur_hysteresis = self.delayed_shift
            stable = self.cur_iter - self.last_overflow_iter - 1
            if stable > 0 and stable % self.scale_window == 0:
                if not self.consecutive_hysteresis:
                    self.cur_hysteresis = self.delayed_shift
                self.cur_scale *= self.scale_factor
        self.cur_iter += 1


_CLASSES = (fragment_address, ZeroStageEnum, LossScaler, DynamicLossScaler)


@contextlib.contextmanager
def classes_of_deepspeed():
    """While something is pickled, the classes are in modules of its names."""
    own = {cls.__name__: cls for cls in _CLASSES}
    made, homes = [], {name: cls.__module__ for name, cls in own.items()}
    for name, home in _HOMES.items():
        parts = home.split(".")
        for depth in range(1, len(parts) + 1):
            module = ".".join(parts[:depth])
            if module not in sys.modules:
                sys.modules[module] = types.ModuleType(module)
                made.append(module)
        setattr(sys.modules[home], name, own[name])
        own[name].__module__ = home
    try:
        yield
    finally:
        for name, home in homes.items():
            own[name].__module__ = home
        for module in made:
            del sys.modules[module]


def files_of(folder, stage):
    """Names in a folder with the tag ``global_step``."""
    return {
        "states": lambda rank: folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        "model": folder / ("zero_pp_rank_0_mp_rank_00_model_states.pt" if stage == 3
                           else "mp_rank_00_model_states.pt"),
    }  # fmt: skip


class Zero2:
    """A model under stage 2 on ``world`` ranks, all of which are here.

    ``groups``: dicts of ``params``, a dict of tensors by name, and of hyper-parameters; ``make``:
    makes an optimizer of groups; ``aligned``: each parameter begins at a multiple of so many
    elements, as with ``parameter_alignment``.
    """

    def __init__(self, groups, world, make, aligned=1):
        self.world, self.shapes, self.paddings = world, [], []
        self.scaler = LossScaler()
        self.hypers = [{k: v for k, v in g.items() if k != "params"} for g in groups]
        self.whole = []
        for group in groups:
            pieces, fill = [], []
            for value in group["params"].values():
                fill.append(-value.numel() % aligned)
                pieces += [value.detach().float().reshape(-1), torch.zeros(fill[-1])]
            self.shapes.append(OrderedDict((n, v.shape) for n, v in group["params"].items()))
            self.paddings.append(fill)
            flat = torch.cat(pieces)
            self.whole.append(torch.cat([flat, torch.zeros(-flat.numel() % (2 * world))]))
        self.optimizers = []
        for rank in range(world):
            own = [self._part(flat, rank).clone() for flat in self.whole]
            pairs = zip(own, self.hypers, strict=True)
            self.optimizers.append(
                make([{"params": [torch.nn.Parameter(p)], **h} for p, h in pairs])
            )

    def _part(self, flat, rank):
        size = flat.numel() // self.world
        return flat[rank * size : (rank + 1) * size]

    def _partitions(self, group):
        return [own.param_groups[group]["params"][0] for own in self.optimizers]

    def places(self, group):
        at = 0
        for (name, shape), fill in zip(self.shapes[group].items(), self.paddings[group],
                                       strict=True):  # fmt: skip
            yield name, shape, at, math.prod(shape)
            at += math.prod(shape) + fill

    def step(self, grads):
        """By name: the mean over ranks."""
        for group in range(len(self.hypers)):
            flat = torch.zeros_like(self.whole[group])
            for name, _, at, numel in self.places(group):
                flat[at : at + numel] = grads[name].reshape(-1)
            for rank, param in enumerate(self._partitions(group)):
                param.grad = self._part(flat, rank).clone()
        for own in self.optimizers:
            own.step()

    def params(self):
        found = {}
        for group in range(len(self.hypers)):
            flat = torch.cat([p.detach() for p in self._partitions(group)])
            for name, shape, at, numel in self.places(group):
                found[name] = flat[at : at + numel].view(shape).clone()
        return found

    def states(self, key):
        found = {}
        for group in range(len(self.hypers)):
            pairs = zip(self.optimizers, self._partitions(group), strict=True)
            flat = torch.cat([own.state[p][key] for own, p in pairs])
            for name, shape, at, numel in self.places(group):
                found[name] = flat[at : at + numel].view(shape).clone()
        return found

    def save(self, root, elastic=False):
        """As ``engine.save_checkpoint(root, "global_step1")``."""
        folder = Path(root) / "global_step1"
        folder.mkdir(parents=True)
        (Path(root) / "latest").write_text("global_step1")
        with classes_of_deepspeed():
            torch.save(self._model_states(), files_of(folder, 2)["model"])
            for rank in range(self.world):
                saved = {
                    "optimizer_state_dict": self._rank_states(rank, elastic),
                    "ds_config": {"zero_optimization": {"stage": 2}},
                    "ds_version": "0.19.8",
                }
                torch.save(saved, files_of(folder, 2)["states"](rank))
        return folder

    def _model_states(self):
        return {
            "module": self.params(), "buffer_names": [], "optimizer": None,
            "param_shapes": self.shapes, "frozen_param_shapes": None, "shared_params": {},
            "lr_scheduler": None, "global_steps": 1, "dp_world_size": self.world,
            "mp_world_size": 1, "ds_version": "0.19.8",
        }  # fmt: skip

    def _rank_states(self, rank, elastic):
        optimizer = self.optimizers[rank]
        params = [group["params"][0] for group in optimizer.param_groups]
        fill = [flat.numel() - sum(n for *_, n in self.places(g)) - sum(self.paddings[g])
                for g, flat in enumerate(self.whole)]  # fmt: skip
        fill = fill if rank == self.world - 1 else [0] * len(fill)
        base = optimizer.state_dict()
        for group in base["param_groups"]:
            group.pop("param_names", None)
        if elastic:
            base = [
                {k: v[: v.numel() - n] if v.dim() else v for k, v in optimizer.state[p].items()}
                for p, n in zip(params, fill, strict=True)
            ]
        return {
            "loss_scaler": self.scaler, "dynamic_loss_scale": False, "overflow": False,
            "clip_grad": 0.0, "base_optimizer_state": base,
            "single_partition_of_fp32_groups": [
                p.detach()[: p.numel() - n] for p, n in zip(params, fill, strict=True)
            ],
            "zero_stage": ZeroStageEnum.gradients, "group_paddings": fill,
            "param_alignment_paddings": self.paddings,
            "partition_count": [self.world] * len(params), "ds_version": "0.19.8",
            "param_slice_mappings": [self._slices(g, rank) for g in range(len(params))],
        }  # fmt: skip

    def _slices(self, group, rank):
        size, found = self.whole[group].numel() // self.world, OrderedDict()
        for name, _, at, numel in self.places(group):
            low, high = max(at, rank * size), min(at + numel, (rank + 1) * size)
            if low < high:
                found[name] = fragment_address(numel=high - low, start=low - rank * size)
        return found

    def load_universal(self, root):
        """As ``load_hp_checkpoint_state_from_checkpoint_dir`` does: fragments of whole tensors."""
        folder = Path(root) / (Path(root) / "latest_universal").read_text()
        groups = torch.load(folder / "zero" / "optimizer_state.pt",
                            weights_only=True)["param_groups"]  # fmt: skip
        for number, group in enumerate(groups):
            flats = {}
            for name, _, at, numel in self.places(number):
                own = folder / "zero" / name
                for path in own.glob("*.pt"):
                    value = torch.load(path, weights_only=True)
                    if path.stem == "step":
                        flats["step"] = value
                        continue
                    assert value["param"].dtype is torch.float32
                    flat = flats.setdefault(path.stem, torch.zeros_like(self.whole[number]))
                    flat[at : at + numel] = value["param"].reshape(-1)
            for rank, (optimizer, param) in enumerate(
                zip(self.optimizers, self._partitions(number), strict=True)
            ):
                own = {k: self._part(v, rank).clone() for k, v in flats.items() if k != "step"}
                param.data.copy_(own.pop("fp32"))
                state = {**own, "step": torch.as_tensor(flats["step"]).clone()}
                packed = optimizer.state_dict()
                packed["state"][number] = state
                hypers = {k: v for k, v in group.items() if k not in ("params", "param_names")}
                packed["param_groups"][number].update(hypers)
                optimizer.load_state_dict(packed)


def save_stage3(root, groups, world, states, step, subgroup=10**9):
    """As stage 3 saves: each parameter in equal parts, filled up by itself; parameters of a group
    in subgroups of at most ``subgroup`` elements of a rank. ``states``: by state, then name."""
    folder = Path(root) / "global_step1"
    folder.mkdir(parents=True)
    (Path(root) / "latest").write_text("global_step1")
    shapes, of_group = [], []
    for group in groups:
        of_group.append([])
        size = subgroup
        for name, value in group["params"].items():
            if size >= subgroup:
                of_group[-1].append(len(shapes))
                shapes.append(OrderedDict())
                size = 0
            shapes[-1][name] = value.shape
            size += -(-value.numel() // world)
    whole = {name: value for group in groups for name, value in group["params"].items()}

    def vector(values, names, rank):
        pieces = []
        for name in names:
            flat = values[name].float().reshape(-1)
            share = -(-flat.numel() // world)
            flat = torch.cat([flat, torch.full((share * world - flat.numel(),), 9.0)])
            pieces.append(flat[rank * share : (rank + 1) * share])
        return torch.cat(pieces)

    with classes_of_deepspeed():
        model = {"module": {}, "buffer_names": [], "param_shapes": shapes, "shared_params": {}}
        torch.save(model, files_of(folder, 3)["model"])
        for rank in range(world):
            base = {
                "state": {
                    k: {"step": step, **{s: vector(v, own, rank) for s, v in states.items()}}
                    for k, own in enumerate(shapes)
                },
                "param_groups": [
                    {**{k: v for k, v in g.items() if k != "params"}, "params": own}
                    for g, own in zip(groups, of_group, strict=True)
                ],
            }
            saved = {
                "zero_stage": ZeroStageEnum.weights, "loss_scaler": LossScaler(),
                "dynamic_loss_scale": False, "overflow": False, "partition_count": world,
                "optimizer_state_dict": base,
                "fp32_flat_groups": [vector(whole, own, rank) for own in shapes],
            }  # fmt: skip
            torch.save({"optimizer_state_dict": saved, "ds_config": {}, "ds_version": "0.19.8"},
                       files_of(folder, 3)["states"](rank))  # fmt: skip
    return folder
