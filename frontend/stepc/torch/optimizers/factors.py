# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What classes that orthogonalize multiply, by choice: numbers of float32 or of bfloat16."""

from __future__ import annotations

import torch


class Factors:
    """Mix-in before :class:`CompiledStep`, of definitions with the option ``bf16_factors``.

    factors: ``torch.bfloat16`` rounds what the orthogonalization multiplies to bfloat16, as torch
        and the authors do; it is added up and kept in float32 as ever. Processors with dot
        products of bfloat16 (AVX512_BF16) multiply twice as many in the same time; on others the
        bits are the same. ValueError for other types.
    """

    _adds_keywords = True
    _attributes = ("factors",)
    _factors = (torch.float32, torch.bfloat16)

    def __init__(self, *args, factors: torch.dtype = torch.float32, **kwargs) -> None:
        if factors not in self._factors:
            expected = " or ".join(map(str, self._factors))
            raise ValueError(f"factors is {factors}, expected {expected}")
        self.factors = factors
        super().__init__(*args, **kwargs)

    def _read_options(self, group: dict) -> dict[str, bool]:
        options = super()._read_options(group)
        if torch.bfloat16 in self._factors:
            options["bf16_factors"] = self.factors == torch.bfloat16
        return options
