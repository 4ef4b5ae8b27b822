# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can go wrong, as exceptions. All derive from :class:`StepcError`."""

from __future__ import annotations

from dataclasses import dataclass


class StepcError(RuntimeError):
    """The base of all errors that Stepc raises by its own names."""


# --- The compiler -------------------------------------------------------------


class CompilerError(StepcError):
    """The compiler could not be used."""


class CompilerNotFoundError(CompilerError):
    """There is no compiler where it was looked for, or it cannot be run."""


class CompilerTimeoutError(CompilerError):
    """The compiler did not end in time, and was stopped."""


class CompilerCrashedError(CompilerError):
    """The compiler was killed, or ended in a way that it never should."""


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler, at a place in a definition.

    ``line`` and ``column`` count from 1; they are 0 where none was given.
    """

    file: str
    line: int
    column: int
    severity: str
    message: str

    def __str__(self) -> str:
        if not self.line:
            return f"{self.file}: {self.severity}: {self.message}"
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"


class DefinitionError(CompilerError):
    """A definition, or what was asked of it, was refused by the compiler.

    ``diagnostics`` has the messages with file, line and column; the text of the
    exception is all that the compiler said.
    """

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()):
        super().__init__(text)
        self.diagnostics = diagnostics

    def __reduce__(self):
        return type(self), (self.args[0], self.diagnostics)


# --- The runtime --------------------------------------------------------------


class RuntimeLibraryError(StepcError):
    """The runtime library was not found, or has another version."""


class StatusError(StepcError):
    """A call of the runtime was refused; ``status`` is its name in stepc.h."""

    def __init__(self, message: str, status: str = "STEPC_INTERNAL_ERROR"):
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return type(self), (self.args[0], self.status)


class PackageError(StatusError):
    """A package is unreadable, corrupt, of another version or processor."""


class TensorError(StatusError, ValueError):
    """A tensor has a shape, dtype, device or memory that cannot be stepped."""


class NameNotFoundError(StatusError, KeyError):
    """No hyper-parameter, option or state has this name."""

    __str__ = RuntimeError.__str__


class OutOfMemoryError(StatusError, MemoryError):
    """The runtime found no memory."""


class NeedsBindError(StatusError):
    """What was asked for needs the tensors to be bound anew."""


class HyperparameterError(StepcError, ValueError):
    """A group's hyper-parameter is missing or not a number."""


class CommunicationError(StatusError):
    """Ranks could not combine their parts of a step; the optimizer is poisoned."""


class DisagreementError(CommunicationError):
    """Ranks would step with other things than others; nothing has changed, and a step in which
    they are alike goes on."""


class AbandonedError(CommunicationError):
    """The backward pass of another rank ended before all its gradients had come. What was stepped
    is the same on all ranks, and they may go on."""


class StaleStatisticsError(StatusError):
    """A parameter was written by others, which ``exclusive_writes=True`` promises not to
    happen; the step was made, with old statistics."""


class DeviceError(StatusError):
    """A call of a device's driver failed, or there is no driver."""


class StoreError(StatusError):
    """The file that keeps states on disk, or that of another rank, has no room, or cannot be read
    or written. ``torn``: whether it was in the middle of a step, which has changed some parameters
    and states. ``unstepped``: whether all ranks have heard of it before any of them stepped."""

    torn = False
    unstepped = False


class BusyError(StatusError):
    """Another thread is inside the same optimizer."""


class LossScaleError(StepcError):
    """Gradients overflow where the loss scale is at its least; the step was skipped."""


class StaticGradientsError(StepcError):
    """A gradient is another tensor than ``static_grads=True`` promised."""


# --- Checkpoints ----------------------------------------------------------------


class CheckpointError(StepcError, ValueError):
    """A checkpoint cannot be read, written or loaded; ``path`` is the file or folder that it is
    of. Nothing has changed. What comes of a file is shown as far as it can be printed."""

    _LONGEST = 600

    def __init__(self, path, words: str):
        words = "".join(c if c.isprintable() else "?" for c in words)
        words = words if len(words) <= self._LONGEST else f"{words[: self._LONGEST]}..."
        super().__init__(f"'{path}' {words}")
        self.path, self.words = str(path), words

    def __reduce__(self):
        return type(self), (self.path, self.words)
