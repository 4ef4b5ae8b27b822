# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small transformer, with dims that do not divide by the number of ranks."""

import torch
from torch import nn

WIDTH, HEADS, WORDS, LENGTH = 36, 6, 50, 7


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (f(y) for f in (self.query, self.key, self.value))
        q, k, v = (
            t.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2).contiguous() for t in (q, k, v)
        )
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).flatten(-2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(step: int, size: int = 8):
    """Tokens and their successors: the same on all ranks."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(WORDS, (size, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model, tokens, targets):
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
