"""Shapes of the parameters of the benchmark's models.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import math


def gpt2(d=768):
    """GPT-2 124M: 148 tensors, in the order of its parameters()."""
    block = [(d,), (d,), (d, 3 * d), (3 * d,), (d, d), (d,)]
    block += [(d,), (d,), (d, 4 * d), (4 * d,), (4 * d, d), (d,)]
    return [(50257, d), (1024, d), *(block * 12), (d,), (d,)]


def gpt2_half():
    """GPT-2's tensors at half the width."""
    return gpt2(384)


def gpt2_hidden(d=768):
    """The 48 matrices of GPT-2's blocks, as linear layers have them: what Muon is for."""
    return [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)] * 12


def vit():
    """ViT-B/16 for images of 224 x 224 and 1000 classes: 152 tensors."""
    d = 768
    block = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,)]
    block += [(d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    head = [(1, 1, d), (d, 3, 16, 16), (d,), (1, 197, d)]
    return [*head, *(block * 12), (d,), (d,), (1000, d), (1000,)]


def bert():
    """BERT-large, uncased, with its pooler and heads of pretraining: 398 tensors."""
    d = 1024
    block = [(d, d), (d,)] * 4 + [(d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,), (d,), (d,)]
    head = [(30522, d), (512, d), (2, d), (d,), (d,)]
    tail = [(d, d), (d,), (30522,), (d, d), (d,), (d,), (d,), (2, d), (2,)]
    return [*head, *(block * 24), *tail]


def llama7b(layers=32):
    """Llama-7B: 291 tensors."""
    d, inner = 4096, 11008
    block = [(d, d)] * 4 + [(inner, d), (inner, d), (d, inner), (d,), (d,)]
    return [(32000, d), *(block * layers), (d,), (32000, d)]


def tiny():
    """10 000 tensors of 64."""
    return [(64,)] * 10_000


def host():
    """As many tensors as GPT-2 has, with next to nothing in them."""
    return [(64,)] * 148


def smoke():
    """For the test of the harness."""
    return [(7, 5), (64,), (), (3, 1, 2), (1000,)]


def smoke_matrices():
    """The same, of those that step matrices alone."""
    return [(7, 5), (5, 7), (1, 64)]


SHAPES = {
    "gpt2": gpt2,
    "gpt2-half": gpt2_half,
    "gpt2-hidden": gpt2_hidden,
    "vit": vit,
    "bert": bert,
    "llama7b": llama7b,
    "tiny": tiny,
    "host": host,
    "smoke": smoke,
    "smoke-matrices": smoke_matrices,
}
LABELS = {
    "gpt2": "GPT-2 124M (148 tensors)",
    "gpt2-half": "GPT-2 at half the width (148 tensors)",
    "gpt2-hidden": "hidden matrices of GPT-2 124M (48 tensors)",
    "vit": "ViT-B/16 (152 tensors)",
    "bert": "BERT-large (398 tensors)",
    "llama7b": "Llama-7B (291 tensors)",
    "tiny": "10 000 tensors of 64",
    "host": "148 tensors of 64",
    "smoke": "5 small tensors",
    "smoke-matrices": "3 small matrices",
}


def elements(shapes):
    return sum(math.prod(shape) for shape in shapes)
