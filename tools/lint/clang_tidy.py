# Runs clang-tidy over source files and remembers what was clean.
#
# Where the build compiles several sources at once (cmake/StepcUnity.cmake) they are
# looked at together, with one reading of their headers: what is looked at is what
# the build compiles. Its result is remembered under a hash of all that it depends on: the
# configuration, the tool, the compile command, and the contents of the file and
# of the headers of this tree that the build included (from ninja's log of
# dependencies). A second run of an unchanged tree reads a few files and is done.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TOOL = "clang-tidy-22"
# The compile commands were made for GCC.
GCC_ONLY = (" -fno-tree-loop-distribute-patterns",)
EXTRA = [
    r"--header-filter=.*\.cpp$",  # a source among others is a header to clang-tidy
    "--extra-arg=-Wno-unknown-warning-option",
    "--extra-arg=-Wno-ignored-optimization-argument",
    "--extra-arg=-Wno-unused-command-line-argument",
]


def gcc_headers():
    """Arguments that let clang find headers that only GCC has, as omp.h; last of all."""
    done = subprocess.run(
        ["cc", "-print-file-name=include"], capture_output=True, text=True, check=False
    )
    folder = done.stdout.strip()
    return ["--extra-arg=-idirafter", f"--extra-arg={folder}"] if folder else []


class Hasher:
    """Hashes of file contents, each file read once."""

    def __init__(self):
        self.known = {}

    def of(self, path):
        path = str(path)
        if path not in self.known:
            try:
                data = Path(path).read_bytes()
            except OSError:
                data = b"missing"
            self.known[path] = hashlib.sha256(data).hexdigest()
        return self.known[path]


def dependencies(build, root):
    """Maps an object file to the files of this tree that it was made from."""
    text = subprocess.run(
        ["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=False
    ).stdout
    result, current = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            current = result.setdefault(line.split(":")[0], [])
        elif line.strip() and current is not None:
            path = os.path.normpath(build / line.strip())
            if path.startswith(str(root) + os.sep):
                current.append(path)
    return result


def commands(build, folder):
    """The compile commands by file, one for each; and a database of just those.

    A source that two targets compile is looked at as its first target does.
    """
    by_file = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        for flag in GCC_ONLY:
            command["command"] = command["command"].replace(flag, "")
        by_file.setdefault(os.path.normpath(command["file"]), command)
    database = folder / "compile_commands.json"
    database.write_text(json.dumps(list(by_file.values()), indent=0))
    return by_file


def sources(path):
    """The sources that a file to be compiled has: itself, or those that it includes."""
    if "/Unity/" not in path:
        return [path]
    included = re.findall(r'^#include "(.*)"$', Path(path).read_text(), re.M)
    return [os.path.normpath(each) for each in included]


def compiled_files(root, files, by_file):
    """What is compiled of the files: each source once, by the first target that has it."""
    wanted = {os.path.normpath(root / file) for file in files}
    for path in by_file:
        own = wanted.intersection(sources(path))
        if own:
            wanted -= own
            yield path


def jobs(build, root, files, by_file, hasher):
    """Yields (file, key) for each file that is compiled of those."""
    deps = dependencies(build, root)
    version = subprocess.run([TOOL, "--version"], capture_output=True, text=True, check=True).stdout
    common = [version, hasher.of(root / ".clang-tidy"), hasher.of(__file__)]
    for path in compiled_files(root, files, by_file):
        command = by_file[path]
        parts = [*common, command["command"], path, hasher.of(path)]
        for dep in sorted(deps.get(command.get("output", ""), [])):
            parts += [dep, hasher.of(dep)]
        file = os.path.relpath(path, root)
        yield file, hashlib.sha256("\n".join(parts).encode()).hexdigest()


def tidy(folder, root, file, extra):
    begin = time.monotonic()
    done = subprocess.run(
        [TOOL, "--quiet", "-p", str(folder), *extra, str(root / file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    root = Path.cwd()
    folder = args.build / "lint"
    folder.mkdir(parents=True, exist_ok=True)
    memory_file = folder / "clang-tidy.json"
    try:
        clean = dict(json.loads(memory_file.read_text()))
    except (OSError, ValueError):
        clean = {}
    by_file = commands(args.build, folder)
    work = list(jobs(args.build, root, args.files, by_file, Hasher()))
    todo = [(file, key) for file, key in work if clean.get(file) != key]
    # The longest first, that none is left alone at the end.
    todo.sort(key=lambda one: -sum(os.path.getsize(s) for s in sources(str(root / one[0]))))
    bad, findings, extra = 0, [], EXTRA + gcc_headers()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(tidy, folder, root, file, extra): (file, key) for file, key in todo}
        for future in concurrent.futures.as_completed(running):
            file, key = running[future]
            code, out, err, seconds = future.result()
            if code == 0:
                clean[file] = key
                memory_file.write_text(json.dumps(clean, indent=0))
            else:
                bad += 1
                findings.append(out or err)
            print(f"{seconds:6.1f} s  {file}: {'ok' if code == 0 else 'FAILED'}", flush=True)
    print("\n".join(findings))
    print(f"clang-tidy: {len(work)} files, {len(todo)} looked at, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
