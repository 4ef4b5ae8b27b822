# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the papers' equations are made of: tensors in groups, and moments of gradients."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Tensor:
    param: np.ndarray
    grad: np.ndarray | None = None
    states: dict = field(default_factory=dict)
    count: int = 0

    def state(self, name, shape=None):
        """The state before the step; zeros in the first one."""
        shape = self.param.shape if shape is None else shape
        return self.states.setdefault(name, np.zeros(shape))


@dataclass
class Group:
    hypers: dict
    tensors: list


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def norm(x):
    return np.sqrt(np.sum(np.square(x)))


def of_each_tensor(update):
    """A step of the model from the step of one tensor alone."""

    def step(groups, options, memory):
        del memory
        for group in groups:
            for tensor in group.tensors:
                if tensor.grad is not None:
                    tensor.count += 1
                    update(tensor, group.hypers, options)

    return step


def moments(tensor, g, h, gain=None):
    gain = 1 - h["beta1"] if gain is None else gain
    m = h["beta1"] * tensor.state("exp_avg") + gain * g
    v = h["beta2"] * tensor.state("exp_avg_sq") + (1 - h["beta2"]) * g**2
    tensor.states.update(exp_avg=m, exp_avg_sq=v)
    return m, v
