# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that zero has cut of what owners step. To the plan the tensor is its owner's and has no
entry, so that its gradients are reduced and its rows gathered here."""

from __future__ import annotations

import torch

from ..tensors.dlpack import divided
from .messages import Reader, aligned, exchange, pack


class OwnedRows:
    """Of the parts of an optimizer that owners step, those that ranks of zero have all of."""

    def __init__(self, parts: list, zero):
        self.parts, self._how = parts, zero.how
        cuts = zero.cuts()
        # Of each part the elements [begin, end) of every rank.
        self._cuts = [[of_rank[id(part.param)] for of_rank in cuts] for part in parts]

    @property
    def group(self):
        return self._how.group

    def reduce(self) -> None:
        """Gives parts the gradient of their rows: that of the rank, or the mean over ranks, which
        is added up in f32 in their order. Where any rank has one it counts as zero on the
        others."""
        if not self._how.local_gradients:
            for part in self.parts:
                grad = part.inner.local.grad
                part.reduced = None if grad is None else part.inner.cut(grad.detach())
            return
        messages = [pack(list(self._sent(rank))) for rank in range(self._how.world)]
        sizes = [len(messages[self._how.rank])] * self._how.world
        readers = [Reader(message) for message in exchange(messages, sizes, self.group)]
        for part in self.parts:
            part.reduced = self._mean(part, readers)

    def _sent(self, rank: int):
        for part, cuts in zip(self.parts, self._cuts, strict=True):
            grad = part.inner.local.grad
            yield torch.tensor([int(grad is not None)], dtype=torch.int64, device="cpu")
            begin, end = cuts[rank]
            wire = self._wire(part)
            if grad is None:
                yield torch.zeros(end - begin, dtype=wire, device="cpu")
                continue
            own = grad.detach().reshape(-1)[begin:end]
            if self._how.predivide:
                own = divided(own.to(part.wide), self._how.world)
            yield own.to(wire)

    def _wire(self, part) -> torch.dtype:
        return self._how.reduce_dtype or part.param.dtype

    def _mean(self, part, readers: list[Reader]) -> torch.Tensor | None:
        own = part.held
        total = torch.zeros(own.numel(), dtype=part.wide, device="cpu")
        found = False
        for reader in readers:
            found |= bool(reader.numbers(1)[0])
            total += reader.tensor(self._wire(part), own.numel())
        if not found:
            return None
        if not self._how.predivide:
            total = divided(total, self._how.world)
        return total.view(own.shape)

    def gather(self) -> None:
        """Puts the rows of all ranks together, of what was stepped: the same on all."""
        stepped = [pair for pair in zip(self.parts, self._cuts, strict=True) if pair[0].stepped]
        if not stepped:
            return
        own = pack([part.held for part, _ in stepped])
        sizes = [
            sum(
                aligned((cuts[rank][1] - cuts[rank][0]) * part.param.dtype.itemsize)
                for part, cuts in stepped
            )
            for rank in range(self._how.world)
        ]
        for rank, message in enumerate(exchange([own] * self._how.world, sizes, self.group)):
            reader = Reader(message)
            for part, cuts in stepped:
                begin, end = cuts[rank]
                rows = reader.tensor(part.param.dtype, end - begin)
                if rank != self._how.rank:
                    part.inner.local.detach().view(-1)[begin:end] = rows
