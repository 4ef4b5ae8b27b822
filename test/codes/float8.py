# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format f8_e4m3 (docs/states.md) in numpy and torch, whose float8 rounds as ours has to."""

import numpy as np
import root4
import torch

LEAST = np.float32(2.0**-96)


def encode(values):
    """The codes, of the shape of the values, and the scales, in their order."""
    values = np.ascontiguousarray(values, np.float32)
    rows, there = root4.blocks(values)
    codes, scales = np.zeros(rows.shape, np.int8), np.zeros(len(rows), np.float32)
    for number, row in enumerate(rows):
        magnitude = np.abs(row)
        top = np.float32(np.nan) if np.isnan(row).any() else magnitude.max()
        if not np.isfinite(top) or top == 0:
            scales[number] = top
            continue
        scale = np.maximum(top / np.float32(448), LEAST)
        scale = (scale.reshape(1).view(np.int32) & ~7).view(np.float32)[0]
        share = torch.from_numpy(magnitude * (np.float32(1) / scale))
        code = share.to(torch.float8_e4m3fn).view(torch.int8).numpy()
        code = np.maximum(code, magnitude > 0)
        codes[number] = np.where(row < 0, code | np.int8(-128), code)
        scales[number] = scale
    return codes.reshape(-1)[there].reshape(values.shape), scales


def decode(codes, scales, shape=None):
    """What they stand for, of the shape of the codes."""
    rows, there = root4.blocks(codes)
    numbers = torch.from_numpy(rows.view(np.int8)).view(torch.float8_e4m3fn).float().numpy()
    with np.errstate(invalid="ignore"):
        values = numbers * np.asarray(scales, np.float32).reshape(-1, 1)
    return values.reshape(-1)[there].reshape(codes.shape)
