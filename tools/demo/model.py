"""A small GPT: pre-norm blocks, learned positions, the output tied to the embedding.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 4, 256, 4, 128, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        rows, length, _ = x.shape
        heads = self.qkv(x).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * LAYERS) ** 0.5 if deep else 0.02)

    def forward(self, inputs, targets):
        """The mean loss in nats a byte."""
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make(seed):
    torch.manual_seed(seed)
    return GPT()
