# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a class's constructor takes, for ``help`` and tools that read signatures."""

from __future__ import annotations

import inspect

from ..binding import features as _features
from ..ranks import arguments as _on_ranks

# What every class takes, by keyword only; see CompiledStep.
_KEYWORDS = [
    inspect.Parameter("static_grads", inspect.Parameter.KEYWORD_ONLY, default=False),
    inspect.Parameter("exclusive_writes", inspect.Parameter.KEYWORD_ONLY, default=False),
    inspect.Parameter("reproducible", inspect.Parameter.KEYWORD_ONLY, default=False),
    inspect.Parameter("fused_backward", inspect.Parameter.KEYWORD_ONLY, default=False),
    inspect.Parameter("clip", inspect.Parameter.KEYWORD_ONLY, default=None),
    inspect.Parameter("loss_scale", inspect.Parameter.KEYWORD_ONLY, default=None),
    *(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in {**_on_ranks.KEYWORDS, **_features.KEYWORDS}.items()
    ),
    inspect.Parameter("master", inspect.Parameter.KEYWORD_ONLY, default=None),
    inspect.Parameter("state_dtype", inspect.Parameter.KEYWORD_ONLY, default=None),
    inspect.Parameter("rounding", inspect.Parameter.KEYWORD_ONLY, default=None),
    inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY, default=0),
]


def signature_of(cls: type, mixin: type) -> inspect.Signature:
    """That of the constructor which a class has or inherits from torch, with what
    all classes take in place of ``**features``, and beside what a class of the user's hands
    on. ``mixin``: the part that all share, whose own does not count."""
    init = next(
        base.__dict__["__init__"]
        for base in cls.__mro__
        if "__init__" in base.__dict__ and base is not mixin
    )
    own = list(inspect.signature(init).parameters.values())[1:]
    if init.__module__.startswith("stepc.") and all(p.name != "features" for p in own):
        return inspect.Signature(own)
    if init.__module__.startswith(("stepc.", "torch.")):
        return inspect.Signature([*(p for p in own if p.name != "features"), *_KEYWORDS])
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return inspect.Signature(own)
    named = {parameter.name for parameter in own}
    more = [keyword for keyword in _KEYWORDS if keyword.name not in named]
    return inspect.Signature([*own[:-1], *more, own[-1]])
