# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the compiler: a separate process, by argument list, with a deadline.

The definition is handed over as a snapshot in a directory of its own, so that
what is compiled is what was hashed, and packages do not depend on where the
definition lies. Diagnostics name the file that the user wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from . import errors

DEFAULT_TIMEOUT = 120.0  # seconds
_SNAPSHOT = "definition.mlir"
_DIAGNOSTIC = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning|note|remark): "
    r"(?P<message>.*)$"
)


# --- Finding it ---------------------------------------------------------------


def compiler_candidates() -> list[Path]:
    """Where the compiler is looked for: environment, package, build tree."""
    named = os.environ.get("STEPC_COMPILER")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    return [
        package / "bin" / "stepc",
        package.parents[1] / "build" / "bin" / "stepc",
        package.parents[1] / "bin" / "stepc",
    ]


def find_compiler() -> Path:
    """The compiler's path; CompilerNotFoundError where there is none."""
    candidates = compiler_candidates()
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(f"'{path}'" for path in candidates)
    raise errors.CompilerNotFoundError(
        f"the compiler was not found; looked for {looked} (STEPC_COMPILER names another place)"
    )


def identity() -> str:
    """Changes when the compiler does; costs one ``stat``."""
    path = find_compiler().resolve()
    status = path.stat()
    text = f"{path}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()


def timeout() -> float:
    """Seconds that a run may take: STEPC_COMPILE_TIMEOUT, or the default."""
    text = os.environ.get("STEPC_COMPILE_TIMEOUT")
    if not text:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0.0:
        raise errors.CompilerError(
            f"STEPC_COMPILE_TIMEOUT is '{text}', not a positive number of seconds"
        )
    return seconds


# --- Running it ---------------------------------------------------------------


def compile_package(text: str, name: str, arguments: list[str]) -> bytes:
    """Compiles a definition; returns the bytes of the package.

    ``text``: the definition; ``name``: the file it came from, for messages;
    ``arguments``: the request, as on the compiler's command line. Raises
    DefinitionError, CompilerNotFoundError, CompilerTimeoutError or
    CompilerCrashedError.
    """
    with tempfile.TemporaryDirectory(prefix="stepc-") as folder:
        _run(text, name, ["-o", "out.stepc", *arguments], folder)
        package = Path(folder, "out.stepc")
        if not package.is_file():
            raise errors.CompilerCrashedError(
                f"the compiler reported success but wrote no package for '{name}'"
            )
        return package.read_bytes()


def interface(text: str, name: str) -> str:
    """The definition's interface, as the compiler's JSON text."""
    with tempfile.TemporaryDirectory(prefix="stepc-") as folder:
        return _run(text, name, ["--interface"], folder)


def _run(text: str, name: str, arguments: list[str], folder: str) -> str:
    compiler = find_compiler().resolve()
    Path(folder, _SNAPSHOT).write_text(text, encoding="utf-8")
    command = [str(compiler), _SNAPSHOT, *arguments]
    seconds = timeout()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise errors.CompilerNotFoundError(
            f"cannot run the compiler '{compiler}': {error.strerror or error}"
        ) from None
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise errors.CompilerTimeoutError(
                f"the compiler did not finish '{name}' in {seconds:g} s "
                "(STEPC_COMPILE_TIMEOUT sets the limit)"
            ) from None
        except BaseException:
            _kill(process)
            raise
    _check(process.returncode, err.decode(errors="replace"), name, compiler)
    return out.decode(errors="replace")


def _kill(process: subprocess.Popen) -> None:
    """Stops the compiler and what it started; it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check(code: int, said: str, name: str, compiler: Path) -> None:
    """Turns an exit status into the exception that belongs to it."""
    if code == 0:
        return
    diagnostics = parse_diagnostics(said, name)
    said = _with_name(said, name).strip()
    if code < 0:
        try:
            by = signal.Signals(-code).name
        except ValueError:
            by = f"signal {-code}"
        raise errors.CompilerCrashedError(
            f"the compiler '{compiler}' was killed by {by} while it compiled '{name}'"
            + (f":\n{said}" if said else "")
        )
    if code == 1 and said:
        raise errors.DefinitionError(said, diagnostics)
    raise errors.CompilerCrashedError(
        f"the compiler '{compiler}' ended with status {code} for '{name}'"
        + (f":\n{said}" if said else "")
    )


def _with_name(said: str, name: str) -> str:
    return re.sub(rf"^{re.escape(_SNAPSHOT)}(?=:)", lambda _: name, said, flags=re.MULTILINE)


def parse_diagnostics(said: str, name: str) -> tuple[errors.Diagnostic, ...]:
    """The messages with a place in what the compiler said."""
    found = []
    for line in _with_name(said, name).splitlines():
        match = _DIAGNOSTIC.match(line)
        if match:
            found.append(
                errors.Diagnostic(
                    match["file"],
                    int(match["line"]),
                    int(match["column"]),
                    match["severity"],
                    match["message"],
                )
            )
    return tuple(found)
