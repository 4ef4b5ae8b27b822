# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every file of layouts that says something wrong is refused, with its place."""

import subprocess
import sys
import tempfile
from pathlib import Path

MESH = '{"mesh": {"dp": 2, "tp": 2},\n "tensors": [\n'
TENSORS = {
    '"a"': "3:1: a tensor is no object",
    "{}": "3:1: a tensor has no 'name'",
    '{"name": ["a"]}': "3:10: 'name' is no text",
    '{"name": "a", "name": "b"}': "3:15: a tensor has 'name' twice",
    '{"nam": "a"}': (
        "3:9: a tensor has 'nam', which is none of name, rank, shape, count, param, gradient, "
        "states"
    ),
    '{"name": "a", "count": 0}': "3:24: 'count' is '0', no integer from 1 on",
    '{"name": "a", "rank": "two"}': "3:23: 'rank' is 'two', no integer from 1 on",
    '{"name": "a", "shape": 4}': "3:24: 'shape' is no list",
    '{"name": "a", "shape": [4, -1]}': "3:28: an extent is '-1', no integer from 0 on",
    '{"name": "a", "rank": 1, "shape": [4, 4]}': "3:1: 'rank' is 1, 'shape' has 2 extents",
    '{"name": "a",\n "param": "dp"}': "4:11: a layout is no object",
    '{"name": "a",\n "param": {"-1": "pp"}}': "4:18: axis 'pp' is none of the mesh's: dp, tp",
    '{"name": "a", "param": {"-1": ["dp", "dp"]}}': "3:31: axis 'dp' shards twice",
    '{"name": "a", "param": {"-1": {"a": 1}}}': "3:31: the axes is no text",
    '{"name": "a", "param": {"-1": [{}]}}': "3:32: an axis is no text",
    '{"name": "a", "param": {"rows": "dp"}}': "3:33: dim 'rows' is neither flat nor a number",
    '{"name": "a", "param": {"-9223372036854775808": "dp"}}': (
        "3:49: dim '-9223372036854775808' is neither flat nor a number"
    ),
    '{"name": "a", "param": {"flat": "dp", "-1": "tp"}}': ("3:45: a layout is flat or shards dims"),
    '{"name": "a", "param": {"0": "dp"}}': (
        "3:1: dim 0 counts from the first, which needs a rank or a shape"
    ),
    '{"name": "a", "rank": 2, "param": {"2": "dp"}}': "3:1: dim 2 is none of a tensor of rank 2",
    '{"name": "a", "rank": 2, "param": {"0": "dp", "-2": "tp"}}': "3:1: dim -2 is there twice",
    '{"name": "a", "param": {"-1": "dp"}, "states": {"flat": "tp"}}': (
        "3:1: the states of 'a' do not lie as parts of what ranks have of the parameter"
    ),
    '{"name": "a", "param": {"-1": "dp"}, "states": {"-2": "tp"}}': (
        "3:1: the states of 'a' do not lie as parts of what ranks have of the parameter"
    ),
    '{"name": "a", "gradient": {"layout": {"-1": "dp"}}}': (
        "3:1: the gradient of 'a' lies neither as the parameter nor as the states"
    ),
    '{"name": "a", "param": {"-1": "dp"}, "gradient": {"partial": "dp"}}': (
        "3:1: the gradient of 'a' is cut and partial over axis 'dp'"
    ),
    '{"name": "a", "gradient": []}': "3:27: 'gradient' is no object",
    '{"name": "a", "gradient": {"divisor": "many"}}': (
        "3:39: 'divisor' is 'many', no number above 0"
    ),
    '{"name": "a", "gradient": {"divisor": -1}}': "3:39: 'divisor' is '-1', no number above 0",
    '{"name": "a", "gradient": {"divided": "never"}}': (
        "3:39: 'divided' is 'never', neither before nor after"
    ),
    '{"name": "a", "gradient": {"sum": 1}}': (
        "3:35: 'gradient' has 'sum', which is none of partial, divisor, divided, layout, wire"
    ),
    '{"name": "a", "gradient": {"partial": "dp", "wire": "i8"}}': (
        "3:53: 'wire' is 'i8', none of f32, bf16, f16, f64"
    ),
    '{"name": "a", "gradient": {"partial": "dp"}, "states": {"flat": "dp+tp"}}': (
        "3:1: the gradient of 'a' is partial over some of the axes that cut the states alone, dp, "
        "tp, and not over all"
    ),
    '{"name": "a", "gradient": {"wire": "bf16"}}': (
        "3:1: the gradient of 'a' has a wire and is not partial"
    ),
}
FILES = {
    "": "1:1: the file is no object",
    "[]": "1:1: the file is no object",
    "{}": "1:1: the file has no 'mesh'",
    '{"mesh": {"dp": 2}}': "1:1: the file has no 'tensors'",
    '{"mesh": {"dp": 2}, "tensors": []}': "1:1: the file has no 'tensors'",
    '{"mesh": {"dp": 2},\n "tensors": {}}': "2:13: 'tensors' is no list",
    '{"tensors": []}': "1:13: 'tensors' comes before 'mesh', whose axes it names",
    '{"meshes": {}}': "1:12: the file has 'meshes', which is neither mesh nor tensors",
    '{"mesh": 2}': "1:10: 'mesh' is no object",
    '{"mesh": {"dp": 0}}': "1:17: the size of axis 'dp' is '0', no integer from 1 on",
    '{"mesh": {"a+b": 2}}': "1:18: 'a+b' is no name of an axis",
    '{"mesh": {["dp"]: 2}}': "1:11: a key of 'mesh' is no text",
    '{"mesh": {"dp": 2,\n "dp": 2}}': "2:2: 'mesh' has 'dp' twice",
    '{"mesh": {}, "tensors": [{"name": "a", "param": {"-1": "dp"}}]}': (
        "1:56: axis 'dp' is none of the mesh's: it has none"
    ),
    '{"mesh": {"dp": 2}\n "tensors"': "2:10: Unexpected token in Key Value.",
}


def main(stepc: str, zoo: str) -> None:
    files = FILES | {f"{MESH}{text}]}}": words for text, words in TENSORS.items()}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wrong.json")
        command = [stepc, f"{zoo}/lamb.mlir", f"--layout={path}", "--compile-to=bind"]
        for text, words in files.items():
            path.write_text(text)
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 2 or run.stderr != f"stepc: error: {path}:{words}\n":
                failed += 1
                print(f"{text!r}: {run.returncode} {run.stderr!r}, expected {words!r}")
        path.unlink()
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        missing = f"stepc: error: cannot read '{path}': No such file or directory\n"
        failed += run.stderr != missing
    sys.exit(failed != 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
