"""Checks the pictures of --explain=svg: STEPC ZOO.

Each is well-formed XML that refers to nothing outside, names all that the manifest's
schedule does, has no text on another text or beyond its edge, and is the same when it
is made again.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

SPACE = "{http://www.w3.org/2000/svg}"


def names_of(manifest):
    for variant in manifest["variants"]:
        yield variant["name"]
        for entry in variant["schedule"]:
            yield entry.get("kernel") or entry["finish"]
        yield from (operand["name"] for operand in variant["operands"])
        yield from (buffer["name"] for buffer in variant["workspace"] if "exchange" in buffer)
        yield from (f"{dim} over {'+'.join(axes)}" for dim, axes in variant["layout"].items())
    for index, round_ in enumerate(manifest["rounds"]):
        yield f"round {index}"
        yield from (call["function"] for call in round_["calls"])


def boxes_of(root):
    """Where each text is: characters are at most this wide and high."""
    for text in root.iter(f"{SPACE}text"):
        size = 6.6 if text.get("class") == "small" else 7.25
        x, y = float(text.get("x")), float(text.get("y"))
        yield x, y - 9, x + size * len(text.text), y + 3, text.text


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def check(stepc, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "x.stepc"
        command = [stepc, *arguments, "--explain=svg"]
        picture = subprocess.run([*command, "-o", package], check=True, capture_output=True).stdout
        assert subprocess.run(command, check=True, capture_output=True).stdout == picture
        with zipfile.ZipFile(package) as archive:
            manifest = json.loads(archive.read("manifest.json"))
    assert b"href" not in picture and b"url(" not in picture
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SPACE}svg"
    words = " ".join(text.text for text in root.iter(f"{SPACE}text")).split()
    text = " ".join(words)
    missing = [name for name in names_of(manifest) if name != "" and name not in text]
    assert not missing, missing
    boxes = sorted(boxes_of(root))
    width, height = float(root.get("width")), float(root.get("height"))
    for index, box in enumerate(boxes):
        assert box[2] <= width and box[3] <= height, f"beyond the edge: {box}"
        for other in boxes[index + 1 :]:
            if other[0] >= box[2]:
                break
            assert not overlap(box, other), f"on each other: {box[4]!r}, {other[4]!r}"


def main():
    stepc, zoo = sys.argv[1], Path(sys.argv[2])
    for path in sorted(zoo.glob("*.mlir")):
        check(stepc, path)
    fragments = [f"--fragment={zoo}/fragments/{n}.mlir" for n in ("torch_scaler", "clip_by_norm")]
    check(stepc, zoo / "adamw.mlir", *fragments)
    check(stepc, zoo / "came.mlir", *fragments, "--param=bf16", "--grad=bf16")
    check(stepc, zoo / "came.mlir", *fragments, "--layout=zero1", "--layout=tp(1)*fsdp2")
    check(stepc, zoo / "lamb.mlir", "--layout=fsdp2")


if __name__ == "__main__":
    main()
