# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch's own test of optimizers with DTensors checks (test/distributed/tensor/
test_optimizers.py), with ours: a model whose parameters are sharded, trained beside the
whole one, which torch's optimizer steps; torch's tolerances, as its kernels round otherwise.
"""

from copy import deepcopy

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

STEPS = 5
CONFIGS = {
    "Adam": [
        {"lr": 0.1},
        {"lr": 0.1, "betas": (0.6, 0.66), "eps": 1e-6},
        {"lr": 0.1, "weight_decay": 0.05, "amsgrad": True},
        {"lr": 0.1, "weight_decay": 0.05, "maximize": True, "amsgrad": True},
    ],
    "AdamW": [
        {"lr": 0.1},
        {"lr": 0.1, "betas": (0.6, 0.66), "eps": 1e-6, "weight_decay": 0.05, "amsgrad": True},
        {"lr": 0.1, "weight_decay": 0.05, "maximize": True},
    ],
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.05},
        {"lr": 0.1, "momentum": 0.06, "dampening": 0.07},
        {"lr": 0.1, "momentum": 0.08, "weight_decay": 0.05, "nesterov": True, "maximize": True},
    ],
    "Adagrad": [
        {"lr": 0.1},
        {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.05, "initial_accumulator_value": 0.03},
        {"lr": 0.1, "eps": 1e-6, "maximize": True},
    ],
    "RMSprop": [
        {"lr": 0.1},
        {"lr": 0.1, "alpha": 0.85, "eps": 1e-6, "weight_decay": 0.05, "momentum": 0.9},
        {"lr": 0.1, "centered": True, "momentum": 0.9, "maximize": True},
    ],
    "Adadelta": [
        {"lr": 0.1},
        {"lr": 0.1, "rho": 0.85, "eps": 1e-5, "weight_decay": 0.05, "maximize": True},
    ],
    "NAdam": [
        {"lr": 0.1},
        {"lr": 0.1, "weight_decay": 0.05, "momentum_decay": 6e-3, "decoupled_weight_decay": True},
    ],
    "RAdam": [
        {"lr": 0.1},
        {"lr": 0.1, "betas": (0.6, 0.66), "weight_decay": 0.05, "decoupled_weight_decay": True},
    ],
    "Adamax": [{"lr": 0.1}, {"lr": 0.1, "betas": (0.6, 0.66), "weight_decay": 0.05}],
    "ASGD": [
        {"lr": 0.1},
        {"lr": 0.1, "lambd": 0.001, "alpha": 0.85, "t0": 2, "weight_decay": 0.05, "maximize": True},
    ],
    "Rprop": [{"lr": 0.1}, {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (1e-5, 40)}],
}


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.net1, self.net2 = nn.Linear(10, 16), nn.Linear(16, 12)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def shard(name, module, mesh):
    """Every parameter by its first dim, and its gradient too."""
    for key, param in list(module.named_parameters(recurse=False)):
        spread = nn.Parameter(distribute_tensor(param.detach(), mesh, [Shard(0)]))
        spread.register_hook(lambda grad: grad.redistribute(placements=[Shard(0)]))
        module.register_parameter(key, spread)


def distributed(model, mesh):
    return distribute_module(
        deepcopy(model),
        mesh,
        shard,
        lambda _, inputs, mesh: distribute_tensor(inputs[0], mesh, [Shard(0)]),
        lambda _, outputs, mesh: outputs.redistribute(placements=[Replicate()]).to_local(),
    )


def check(name):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for config in CONFIGS[name]:
        model = Perceptron()
        spread = distributed(model, mesh)
        theirs = getattr(torch.optim, name)(model.parameters(), foreach=False, **config)
        ours = getattr(st, name)(spread.parameters(), **config)
        torch.manual_seed(2)
        for step in range(STEPS):
            inputs = torch.randn(8, 10)
            for net, optimizer in ((model, theirs), (spread, ours)):
                optimizer.zero_grad()
                net(inputs).sum().backward()
                optimizer.step()
            for expected, param in zip(model.parameters(), spread.parameters(), strict=True):
                torch.testing.assert_close(
                    param.full_tensor().detach(), expected.detach(), msg=f"{config}, step {step}"
                )
        states = list(ours.state.values())
        assert len(states) == len(theirs.state)
        for own, other in zip(states, theirs.state.values(), strict=True):
            assert set(other) <= set(own) | {"step"}, (name, set(other), set(own))


@case
def adam():
    check("Adam")


@case
def adamw():
    check("AdamW")


@case
def sgd():
    check("SGD")


@case
def adagrad():
    check("Adagrad")


@case
def rmsprop():
    check("RMSprop")


@case
def adadelta():
    check("Adadelta")


@case
def nadam():
    check("NAdam")


@case
def radam():
    check("RAdam")


@case
def adamax():
    check("Adamax")


@case
def asgd():
    check("ASGD")


@case
def rprop():
    check("Rprop")


if __name__ == "__main__":
    main()
