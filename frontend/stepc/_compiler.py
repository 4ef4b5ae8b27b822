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
import time
from collections.abc import Iterator
from pathlib import Path

from . import _platform, errors
from ._log import log

DEFAULT_TIMEOUT = 120.0  # seconds
MOST_TIMEOUT = 1e6  # seconds; what waits for a process can wait for so long
_PATIENCE = 2.0  # seconds, after which a user wonders
_SNAPSHOT = "definition.mlir"
_USAGE = "stepc: error: "
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
    """Changes when the compiler does; costs one ``stat``.

    STEPC_COMPILER_IDENTITY stands for it: entries of a cache that was filled under this
    name elsewhere are then found, also where there is no compiler.
    """
    named = os.environ.get("STEPC_COMPILER_IDENTITY")
    if named:
        return named
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
    if not 0.0 < seconds <= MOST_TIMEOUT:
        raise errors.CompilerError(
            f"STEPC_COMPILE_TIMEOUT is '{text}', expected seconds above 0 and at most "
            f"{MOST_TIMEOUT:.0f}"
        )
    return seconds


# --- Running it ---------------------------------------------------------------


Fragments = tuple[tuple[str, str], ...]


def compile_package(text: str, name: str, arguments: list[str], fragments: Fragments = ()) -> bytes:
    """Compiles a definition; returns the bytes of the package.

    ``text``: the definition; ``name``: the file it came from, for messages;
    ``arguments``: the request, as on the compiler's command line; ``fragments``:
    name and text of each fragment, in order. Raises DefinitionError,
    CompilerNotFoundError, CompilerTimeoutError or CompilerCrashedError.
    """
    begin = time.monotonic()
    with _workplace() as folder:
        _run(text, name, ["-o", "out.stepc", *arguments], folder, fragments)
        package = Path(folder, "out.stepc")
        if not package.is_file():
            raise errors.CompilerCrashedError(
                f"the compiler reported success but wrote no package for '{name}'"
            )
        data = package.read_bytes()
    seconds = time.monotonic() - begin
    log.info("compiled '%s' in %.2f s: %s", name, seconds, " ".join(arguments))
    return data


def interface(text: str, name: str, fragments: Fragments = ()) -> str:
    """The interface of a definition behind fragments, as the compiler's JSON text."""
    with _workplace() as folder:
        return _run(text, name, ["--interface"], folder, fragments)


@contextlib.contextmanager
def _workplace() -> Iterator[str]:
    """A temporary folder for one run. CompilerError where it cannot be made or written."""
    try:
        with tempfile.TemporaryDirectory(prefix="stepc-", ignore_cleanup_errors=True) as folder:
            yield folder
    except OSError as error:
        at = f": '{error.filename}'" if error.filename else ""
        raise errors.CompilerError(
            f"the compiler needs a temporary folder ({error.strerror or error}{at}; TMPDIR names "
            "another place)"
        ) from None


def _write_sources(
    text: str, name: str, fragments: Fragments, folder: str
) -> tuple[list[str], dict[str, str]]:
    """Writes the snapshots; returns the arguments that name the fragments, and
    what the user calls each snapshot."""
    Path(folder, _SNAPSHOT).write_text(text, encoding="utf-8")
    arguments, names = [], {_SNAPSHOT: name}
    for number, (path, source) in enumerate(fragments):
        snapshot = f"fragment{number}.mlir"
        Path(folder, snapshot).write_text(source, encoding="utf-8")
        arguments.append(f"--fragment={snapshot}")
        names[snapshot] = path
    return arguments, names


def _run(text: str, name: str, arguments: list[str], folder: str, fragments: Fragments = ()) -> str:
    compiler = find_compiler().resolve()
    sources, names = _write_sources(text, name, fragments, folder)
    arguments = [*arguments, *sources]
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
        why = _platform.why_not() or error.strerror or error
        raise errors.CompilerNotFoundError(f"cannot run the compiler '{compiler}': {why}") from None
    with process:
        try:
            out, err = _communicate(process, name, seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise errors.CompilerTimeoutError(
                f"the compiler did not finish '{name}' in {seconds:g} s "
                "(STEPC_COMPILE_TIMEOUT sets the limit)"
            ) from None
        except BaseException:
            _kill(process)
            raise
    said = err.decode(errors="replace")
    _check(process.returncode, said, names, compiler)
    for remark in parse_diagnostics(_with_names(said, names)):
        log.info("%s", remark)
    return out.decode(errors="replace")


def _communicate(process: subprocess.Popen, name: str, seconds: float) -> tuple[bytes, bytes]:
    """What it writes; says so when that takes long. subprocess.TimeoutExpired."""
    begin = time.monotonic()
    if seconds > _PATIENCE:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_PATIENCE)
        log.warning("compiling '%s', which takes a while; it is kept for later runs", name)
    return process.communicate(timeout=max(seconds - (time.monotonic() - begin), 0.0))


def _kill(process: subprocess.Popen) -> None:
    """Stops the compiler and what it started; it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check(code: int, said: str, names: dict[str, str], compiler: Path) -> None:
    """Turns an exit status into the exception that belongs to it."""
    if code == 0:
        return
    name = names[_SNAPSHOT]
    said = _with_names(said, names).strip()
    diagnostics = parse_diagnostics(said)
    if code < 0:
        try:
            by = signal.Signals(-code).name
        except ValueError:
            by = f"signal {-code}"
        raise errors.CompilerCrashedError(
            f"the compiler '{compiler}' was killed by {by} while it compiled '{name}'"
            + (f":\n{said}" if said else "")
        )
    if code == 1 and said.startswith(_USAGE):  # of files, as of a full disk
        raise errors.CompilerError(
            f"the compiler could not finish '{name}': {said.removeprefix(_USAGE)}"
        )
    if code == 1 and said:
        raise errors.DefinitionError(said, diagnostics)
    if code == 2 and said.startswith(_USAGE):  # of what it was asked, not of the definition
        raise errors.CompilerError(said.removeprefix(_USAGE))
    raise errors.CompilerCrashedError(
        f"the compiler '{compiler}' ended with status {code} for '{name}'"
        + (f":\n{said}" if said else "")
    )


def _with_names(said: str, names: dict[str, str]) -> str:
    """The same with the names that the user gave, where a line names a file."""
    places = "|".join(map(re.escape, names))
    return re.sub(rf"^({places})(?=:)", lambda m: names[m[0]], said, flags=re.MULTILINE)


def parse_diagnostics(said: str) -> tuple[errors.Diagnostic, ...]:
    """The messages with a place in what the compiler said."""
    found = []
    for line in said.splitlines():
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
