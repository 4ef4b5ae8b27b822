# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose tensors are seen in another shape, as a group's ``view`` has them: the notation is
that of ``stepc.torch`` (docs/optimizers.md), which reads it, so this needs torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from .failure import PlanError
from .models import Model, Tensor
from .package import Definition


def with_views(model: Model, views: tuple[tuple[str, str], ...], definition: Definition) -> Model:
    """The model with what is stepped in place of the parameters: those whose names a regular
    expression finds, by the first that does. PlanError for a view that is none, or that fits no
    such tensor."""
    if not views:
        return model
    for regex, _ in views:
        if not any(re.search(regex, tensor.name) for tensor in model.tensors):
            raise PlanError(f"no tensor has a name that '{regex}' finds")
    made = []
    for tensor in model.tensors:
        text = next((text for regex, text in views if re.search(regex, tensor.name)), None)
        made += [tensor] if text is None else _blocks(tensor, text, definition)
    return replace(model, tensors=tuple(made))


def _blocks(tensor: Tensor, text: str, definition: Definition) -> list[Tensor]:
    """What is stepped of a tensor: one, or several."""
    try:
        from ..torch.tensors.patterns import parse
    except ImportError as error:
        raise PlanError(f"views are read by stepc.torch: {error}") from None
    try:
        view = parse(text)
        view.shape(tensor.shape)
        shapes = view.shapes(tensor.shape)
    except ValueError as error:
        raise PlanError(f"tensor '{tensor.name}': {error}") from None
    shapes = [own for shape in shapes for own in _alone(shape, definition)]
    if len(shapes) == 1:
        return [replace(tensor, shape=shapes[0])]
    return [
        replace(tensor, name=f"{tensor.name}[{number}]", shape=shape, of=tensor.name)
        for number, shape in enumerate(shapes)
    ]


def _alone(shape: tuple[int, ...], definition: Definition) -> Iterator[tuple[int, ...]]:
    """The matrices of a shape of more dims, where their rule takes one; else the shape."""
    if len(shape) > 2:
        rule = definition.tensor(shape[-2:]).rule
        if rule.needs_matrices and len(rule.dims) == 2:
            yield from [shape[-2:]] * math.prod(shape[:-2])
            return
    yield shape
