# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a class's constructor takes, for ``help`` and tools that read signatures."""

from __future__ import annotations

import inspect

from ..binding import features as _features
from ..ranks import arguments as _on_ranks


def _keyword_only(cls: type) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(cls.__init__).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY]  # fmt: skip


def _keywords(mixin: type) -> list[inspect.Parameter]:
    """What every class takes, by keyword only; see CompiledStep, the ``mixin``."""
    more = {**_on_ranks.KEYWORDS, **_features.KEYWORDS}
    own = _keyword_only(mixin)
    place = 1 + next(number for number, p in enumerate(own) if p.name == "loss_scale")
    more = [own[0].replace(name=name, default=default) for name, default in more.items()]
    return own[:place] + more + own[place:]


def signature_of(cls: type, mixin: type) -> inspect.Signature:
    """That of the constructor which a class has or inherits from torch, with what
    all classes take in place of ``**features``, and beside what a class of the user's hands
    on. ``mixin``: the part that all share, whose own does not count; nor does that of parts
    with ``_adds_keywords``, which some share."""
    added = [base for base in cls.__mro__ if base.__dict__.get("_adds_keywords")]
    init = next(
        base.__dict__["__init__"]
        for base in cls.__mro__
        if "__init__" in base.__dict__ and base not in (mixin, *added)
    )
    keywords = [*(p for base in added for p in _keyword_only(base)), *_keywords(mixin)]
    own = list(inspect.signature(init).parameters.values())[1:]
    if init.__module__.startswith("stepc.") and all(p.name != "features" for p in own):
        return inspect.Signature(own)
    if init.__module__.startswith(("stepc.", "torch.")):
        return inspect.Signature([*(p for p in own if p.name != "features"), *keywords])
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return inspect.Signature(own)
    named = {parameter.name for parameter in own}
    more = [keyword for keyword in keywords if keyword.name not in named]
    return inspect.Signature([*own[:-1], *more, own[-1]])
