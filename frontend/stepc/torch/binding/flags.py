# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer asks of the compiler beside variants."""

from __future__ import annotations

from ... import errors


def check_flags(optimizer) -> None:
    """Raises ValueError for keywords that do not go together."""
    if optimizer._reproducible and optimizer._exclusive_writes:
        raise ValueError(
            "reproducible=True makes sums in two traversals, which exclusive_writes=True cannot "
            "keep from step to step: give one of the two"
        )


def compiler_flags(optimizer) -> tuple[str, ...]:
    """Options of the compiler."""
    flags = ["--exclusive-writes"] if optimizer._exclusive_writes else []
    flags += ["--reproducible"] if optimizer._reproducible else []
    return tuple(flags)


def check_package(path: str, manifest: dict) -> None:
    """PackageError for a package that a reproducible optimizer cannot be stepped with."""
    if not manifest.get("reproducible"):
        raise errors.PackageError(
            f"package '{path}' was compiled without --reproducible, which reproducible=True needs",
            "STEPC_INVALID_ARGUMENT",
        )
