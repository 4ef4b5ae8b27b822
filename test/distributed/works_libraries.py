# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways of works_ways.py in which another library has put its tensors into the groups."""

import torch
import torch.distributed as dist
from colossal_cases import LowLevelZero, working_of
from works_ways import MEGATRON, Grid, Net, Replicas, cut, mesh_of


class ColossalZero(Replicas):
    """As LowLevelZeroPlugin has it: masters in the groups."""

    tp = 1

    def __init__(self, make, made):
        mesh = mesh_of(dp=4 // self.tp, tp=self.tp)
        self.tp_group = mesh["tp"].get_group() if self.tp > 1 else None
        working = working_of(made, self.tp_group)
        self.net = self.model = Net({name: param.data for name, param in working.items()})
        for name, layer in self.net.layers.items():
            if hasattr(working[name], "dist_layout"):
                layer.weight.dist_layout = working[name].dist_layout
        self.optimizer = make([param for _, param in self.named()])
        self.zero = LowLevelZero(self.optimizer, mesh["dp"].get_group())
        working_of_master = self.zero.master_to_working_param
        self.optimizer.setup_distributed(
            self.tp_group, self.zero.group, working_of_master, self.zero.padding, True
        )

    @property
    def ranks(self):
        return self.zero.world

    @property
    def at(self):
        return self.zero.rank

    def part(self, name, tensor):
        if self.tp == 1 or name not in MEGATRON:
            return tensor
        return cut(tensor, MEGATRON[name], self.tp, dist.get_rank(self.tp_group))

    def step(self):
        self.zero.step()


class ColossalTpWithZero(ColossalZero):
    """As HybridParallelPlugin has it."""

    tp = 2


class ColossalTp(Grid):
    """As HybridParallelPlugin has it without ZeRO: it has taken the mean over replicas."""

    def __init__(self, make, made):
        group = self.mesh["tp"].get_group()
        working = working_of(made, group)
        self.net = self.model = Net({name: param.data for name, param in working.items()})
        for name, param in self.named():
            if hasattr(working[name], "dist_layout"):
                param.dist_layout = working[name].dist_layout
        self.optimizer = make(self.named())
        self.optimizer.setup_distributed(group, self.mesh["dp"].get_group(), {}, None, False)

    def step(self):
        for _, param in self.named():
            dist.all_reduce(param.grad, group=self.mesh["dp"].get_group())
            param.grad /= 2
        self.optimizer.step()


class DeepspeedFlat(Replicas):
    """As DeepSpeedZeroOptimizer has it: a rank's part of all elements as one tensor."""

    def __init__(self, make, made):
        super().__init__(make, made)
        self.flat = self.line([param for _, param in self.named()]).chunk(4)[self.at].clone()
        self.flat.requires_grad_()
        *others, last = self.optimizer.param_groups
        last["params"] = [self.flat]
        for group in others:
            group["params"] = []

    def line(self, tensors):
        line = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        return torch.nn.functional.pad(line, (0, -len(line) % 4))

    def step(self):
        total = self.line([param.grad for _, param in self.named()])
        dist.all_reduce(total)
        self.flat.grad = (total / 4).chunk(4)[self.at].clone()
        self.optimizer.step()
        parts = [torch.empty_like(self.flat) for _ in range(4)]
        dist.all_gather(parts, self.flat.detach())
        line, start = torch.cat(parts), 0
        for _, param in self.named():
            param.data.copy_(line[start : start + param.numel()].view(param.shape))
            start += param.numel()
