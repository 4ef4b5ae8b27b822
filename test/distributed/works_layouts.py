# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways of works_ways.py in which ``layouts`` say how plain tensors lie."""

import stepc.torch as st
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from works_ways import MEGATRON, Grid, Replicas, Stage2, Way, cut, mesh_of


class TpOfPlainParts(Way):
    """The gradient of what is whole is still to be summed, as with sequence parallelism."""

    def part(self, name, tensor):
        at = dist.get_rank()
        return cut(tensor, MEGATRON[name], 4, at) if name in MEGATRON else tensor

    def share(self, name):
        return (0.125, 0.125, 0.25, 0.5)[dist.get_rank()] if name == "norm" else 1.0

    def arguments(self):
        mesh = mesh_of(tp=4)
        layouts = [(n, st.Layout(mesh, [Shard(dim)])) for n, dim in MEGATRON.items()]
        layouts += [("norm", st.Layout(mesh, [Replicate()], grad="partial"))]
        return {"layouts": [*layouts, (".*", st.Layout(mesh, [Replicate()]))]}


class Pp(Way):
    """Four stages with tensors of their own, and one that two have, of which none is the
    first."""

    stages = {"up": 0, "down": 1, "bias": 2, "norm": 3, "expert0": 0, "expert1": 2}

    def has(self, name):
        return dist.get_rank() in ((1, 3) if name == "embedding" else (self.stages[name],))

    def arguments(self):
        mesh = mesh_of(pp=4)
        tied = st.Layout(mesh, [Replicate()], shared_over="pp")
        return {"layouts": [("embedding", tied), (".*", st.Layout(mesh, ["distinct"]))]}


class PpWithTp(Grid):
    """Two stages of two parts each, that have the embedding in common."""

    ranks, at = 1, 0
    axes = {"pp": 2, "tp": 2}
    spread = Way.spread

    def has(self, name):
        stage = self.mesh.get_local_rank("pp")
        return name == "embedding" or Pp.stages[name] % 2 == stage

    def arguments(self):
        layouts = [("embedding", st.Layout(self.mesh, [Replicate(), Replicate()]))]
        layouts += [(n, st.Layout(self.mesh, ["distinct", Shard(d)])) for n, d in MEGATRON.items()]
        return {"layouts": [*layouts, (".*", st.Layout(self.mesh, ["distinct", Replicate()]))]}


class PpWithTpOfDtensors(PpWithTp):
    """The same, where tensor parallelism has made DTensors; what it has not cut are plain
    tensors."""

    def spread(self, name, tensor):
        if name not in MEGATRON:
            return tensor.clone()
        cut = [Shard(MEGATRON[name])]
        return distribute_tensor(tensor, self.mesh["tp"], cut, src_data_rank=None)

    def arguments(self):
        whole = [Replicate()] * (self.mesh.ndim - 1)
        tied = st.Layout(self.mesh, [Replicate(), *whole])
        return {
            "layouts": [("embedding", tied), (".*", st.Layout(self.mesh, ["distinct", *whole]))]
        }


class PpWithZero1(Grid):
    """Two stages of two replicas."""

    stage = 1
    axes = {"pp": 2, "dp": 2}
    has, part, spread = PpWithTp.has, Way.part, Way.spread

    def arguments(self):
        layouts = [("embedding", st.Layout(self.mesh, [Replicate(), Replicate()]))]
        layouts += [(".*", st.Layout(self.mesh, ["distinct", Replicate()]))]
        group = self.mesh["dp"].get_group()
        more = {"zero": self.stage, "gradients": "local", "process_group": group}
        return {"layouts": layouts, **more}


class PpWithZero2(Stage2, PpWithZero1):
    pass


class Hybrid(Grid):
    """All axes of HybridParallelPlugin: two stages, of two replicas, of two parts each. The
    embedding is on both stages."""

    stage = 1
    axes = {"pp": 2, "dp": 2, "tp": 2}
    has, spread = PpWithTp.has, Way.spread

    def arguments(self):
        whole, stages = [Replicate(), Replicate()], ["distinct", Replicate()]
        layouts = [("embedding", st.Layout(self.mesh, [*whole, Replicate()]))]
        layouts += [(n, st.Layout(self.mesh, [*stages, Shard(d)])) for n, d in MEGATRON.items()]
        layouts += [(".*", st.Layout(self.mesh, [*stages, Replicate()]))]
        group = self.mesh["dp"].get_group()
        more = {"zero": self.stage, "gradients": "local", "process_group": group}
        return {"layouts": layouts, **more}


class HybridOfZero2(Stage2, Hybrid):
    pass


class HybridOfDtensors(Hybrid):
    """As torch's tensor and pipeline parallelism have them."""

    spread = PpWithTpOfDtensors.spread

    def arguments(self):
        return {**super().arguments(), **PpWithTpOfDtensors.arguments(self)}


class HybridOfDtensorsAndZero2(Stage2, HybridOfDtensors):
    pass


class Ep(Replicas):
    """Two experts, each on two ranks; all else is on all four. Gradients are reduced before
    the step, as MoeHybridParallelPlugin does."""

    @property
    def mesh(self):
        return mesh_of(dp=2, ep=2)

    def has(self, name):
        expert = self.mesh.get_local_rank("ep")
        return not name.startswith("expert") or name == f"expert{expert}"

    def mean(self, name, own):
        if not name.startswith("expert"):
            return super().mean(name, own)
        holders = [int(name[-1]), 2 + int(name[-1])]
        return sum(own[rank][name] for rank in holders) / 2

    def arguments(self):
        experts = st.Layout(self.mesh, [Replicate(), "distinct"])
        return {"layouts": [("expert.*", experts), (".*", None)]}

    def step(self):
        for name, param in self.named():
            group = self.mesh["dp"].get_group() if name.startswith("expert") else dist.group.WORLD
            dist.all_reduce(param.grad, group=group)
            param.grad /= dist.get_world_size(group)
        self.optimizer.step()


class EpWithZero1(Ep):
    """The optimizer reduces: over the experts by the layout, over replicas by zero."""

    stage = 1

    def arguments(self):
        mesh = self.mesh["ep"]
        experts = st.Layout(mesh, ["distinct"])
        whole = st.Layout(mesh, [Replicate()], grad="partial", grad_divisor=2.0)
        group = self.mesh["dp"].get_group()
        more = {"zero": self.stage, "gradients": "local", "process_group": group}
        return {"layouts": [("expert.*", experts), (".*", whole)], **more}

    def step(self):
        self.optimizer.step()


class EpWithZero2(Stage2, EpWithZero1):
    pass
