# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of ``from_config`` share."""

import copy
import warnings

import pytest
import torch
from stepc.torch.deepspeed import from_config

PLAIN = {
    "train_batch_size": 4,
    "gradient_clipping": 0.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
}


class Model(torch.nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.embed = torch.nn.Embedding(6, hidden)
        self.up = torch.nn.Linear(hidden, 2 * hidden)
        self.norm = torch.nn.LayerNorm(2 * hidden)
        self.lm_head = torch.nn.Linear(2 * hidden, 6)

    def forward(self, tokens):
        return self.lm_head(self.norm(self.up(self.embed(tokens))))


def model_of(**config):
    torch.manual_seed(0)
    model = Model()
    if config:
        model.config = type("Config", (), config)()
    return model


def with_key(path, value, base=PLAIN):
    made = copy.deepcopy(base)
    *blocks, name = path.split(".")
    own = made
    for block in blocks:
        own = own.setdefault(block, {})
    own[name] = value
    return made


def quiet(*given, **more):
    """from_config, with the texts of its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        setup = from_config(*given, **more)
    return setup, [str(one.message) for one in told]


def refused(config, match, model=None, **more):
    """Nothing has changed then."""
    model = model or model_of()
    before = [(p, p.data_ptr(), p.dtype) for p in model.parameters()]
    with pytest.raises(ValueError, match=match) as error:
        from_config(config, model, **more)
    assert before == [(p, p.data_ptr(), p.dtype) for p in model.parameters()]
    return str(error.value)


def optimizer_of(config):
    return quiet(config, model_of())[0].optimizer


def optimizer(kind, **params):
    return {**PLAIN, "optimizer": {"type": kind, "params": params}}


def schedule(kind, **params):
    return {**PLAIN, "scheduler": {"type": kind, "params": params}}
