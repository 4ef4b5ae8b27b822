"""A small GPT: pre-norm blocks, learned positions, the output tied to the embedding.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 4, 256, 4, 128, 256


@dataclass(frozen=True)
class Shape:
    """Of a model. ``tied``: whether the output is the embedding."""

    layers: int = LAYERS
    width: int = WIDTH
    heads: int = HEADS
    length: int = LENGTH
    vocabulary: int = VOCABULARY
    tied: bool = True


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        rows, length, width = x.shape
        heads = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = None if shape.tied else nn.Linear(shape.width, shape.vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5 if deep else 0.02)

    def forward(self, inputs, targets):
        """The mean loss in nats a token, which of the demo is a byte."""
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        weight = self.tokens.weight if self.head is None else self.head.weight
        logits = functional.linear(self.norm(x), weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


DEMO = Shape()


def make(seed, shape=DEMO):
    torch.manual_seed(seed)
    return GPT(shape)
