# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pickles of checkpoints run nothing and reach nothing outside of their file; changed bytes end in
an error that names the file."""

import contextlib
import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from checkpoint_fuzz import make_sources
from samples import number
from stepc.torch import checkpoint as ck
from stepc.torch.checkpoint import dcp
from stepc.torch.checkpoint.pickles import RefusedError, unpickled
from test_checkpoint_refusals import fresh, refused

ROOT = Path(__file__).resolve().parents[2]


class Runs:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_nothing_is_run(tmp_path, protocol):
    """Whatever the pickle is of: a file would be there."""
    flag = tmp_path / "flag"
    attacks = [
        Runs(os.system, f"touch {flag}"),
        Runs(eval, f"open({str(flag)!r}, 'w')"),
        Runs(exec, f"open({str(flag)!r}, 'w')"),
        Runs(open, str(flag), "w"),
        Runs(subprocess.Popen, ["touch", str(flag)]),
        Runs(getattr, os, "system") if protocol > 1 else Runs(Path.touch, flag),
        Runs(torch.load, str(flag)),
        Runs(torch.save, {}, str(flag)),
        Runs(pickle.loads, pickle.dumps(Runs(os.system, f"touch {flag}"))),
    ]
    for attack in attacks:
        for tree in (attack, {"state": {}, "param_groups": [{"params": [], "x": attack}]}):
            try:
                data = pickle.dumps(tree, protocol)
            except TypeError:  # of a module
                continue
            with pytest.raises(RefusedError, match="which is not read"):
                unpickled(data)
        torch.save(attack, tmp_path / "a.pt") if attack.function is not getattr else None
        refused("which is not read", fresh(), tmp_path / "a.pt")
        assert not flag.exists()


def test_hostile_pickles():
    """Ways around a list of names."""
    cases = {
        # A tuple of tuples ... as a key: its hash would go past the end of the stack.
        b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.": "a dict with a key that is a tuple",
        # A place of the memo that the unpickler in C makes room for.
        b"\x80\x02Nr\xff\xff\xff\x7f.": None,
        # Attributes of what others use.
        b"\x80\x02ctorch\nfloat32\n}X\x01\x00\x00\x00aK\x01sb.": "sets attributes of a dtype",
        b"\x80\x02ccollections\nOrderedDict\n}X\x04\x00\x00\x00callK\x01sb.":
            "sets attributes of a _Function",
        b"\x80\x02cdeepspeed.x\nY\n}X\x02\x00\x00\x00ofK\x01sb.": "sets attributes of a type",
        # What is called is an object, a class that is no class, a number.
        b"\x80\x02K\x01)R.": "calls a int",
        b"\x80\x02cdeepspeed.x\nY\n)R)R.": "calls a Inert",
        b"\x80\x02ctorch\nfloat32\n)\x81.": "calls a dtype",
        # Names behind names.
        b"\x80\x02cdeepspeed.x\nY.__class__\n.": None,
        b"\x80\x04\x8c\x05torch\x8c\x12serialization.load\x93.": "which is not read",
        b"\x80\x02ctorch.serialization\nos.system\n.": "which is not read",
        # Sizes of memory in a few bytes; operations that are not written by torch.
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.": "operation",
        b"\x80\x02\x82\x01.": "operation",
        b"(i__main__\nX\n.": "operation",
        b"\x80\x04\x8f(K\x01\x90.": "operation",
        b"\x80\x02K\x01K\x02a.": "appends to a int",
        b"\x80\x02K\x01K\x02K\x03s.": "sets items of a int",
        # A hash that many numbers have, in a table that grows with the square of their number.
        b"\x80\x02}" + b"\x8a\x08" + struct.pack("<q", 2**61 - 1) + b"K\x01s.": "more than 60 bits",
        b"\x80\x02}G" + struct.pack(">d", 0.5) + b"K\x01s.": "a key that is a float",
        # What torch imports when it is asked for.
        b"\x80\x02ctorch\n_dynamo\n.": "which is not read",
        b"\x80\x02ctorch\nonnx\n.": "which is not read",
        b"": None,
        b"\x80\x02": None,
    }  # fmt: skip
    for data, words in cases.items():
        if words is None:
            with contextlib.suppress(RefusedError, EOFError, pickle.UnpicklingError):
                unpickled(data)
            continue
        with pytest.raises(RefusedError, match=words):
            unpickled(data)


def test_what_torch_imports_late_is_not_imported():
    code = (
        "import sys; sys.path[:0] = ['test', 'frontend']\n"
        "import checkpoint_fuzz as cf\nfrom stepc.torch.checkpoint.pickles import unpickled\n"
        "watch = cf.Watch()\nwatch.on = True\n"
        "for name in (b'_dynamo', b'onnx', b'_inductor'):\n"
        "    try:\n        unpickled(b'\\x80\\x02ctorch\\n' + name + b'\\n.')\n"
        "    except Exception as error:\n        watch.on, seen = False, watch.seen\n"
        "        print(len(seen), error)\n        watch.on = True\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                          check=False)  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all(own.startswith("0 ") for own in lines), done


_BIG = b"\x8a\x08" + struct.pack("<q", 2**62)


def _text(size):
    return b"X" + struct.pack("<I", size) + b"a" * size


def _copies(call, times=300, size=10_000):
    """A call of one memoized argument, again and again."""
    return b"\x80\x02]" + _text(size) + b"q\x010(" + (call + b"h\x01\x85R") * times + b"e."


@pytest.mark.parametrize(
    "data, words",
    [
        (_copies(b"c__builtin__\nset\n"), "copies more than it has"),
        (_copies(b"c_codecs\nencode\n").replace(b"h\x01\x85R", b"h\x01U\x06latin1\x86R"),
         "copies more than it has"),
        (b"\x80\x02(" + b"}q\x00(" + b"".join(_text(9) + b"K\x01" for _ in range(1)) + b"u0"
         + b"(" + b"N" * 10_000 + b"tq\x010" + b"cdeepspeed.x\nY\nh\x01R" * 300 + b"t.",
         "copies more than it has"),
        (b"\x80\x02(}q\x00(" + b"".join(b"J" + struct.pack("<i", n) + b"N" for n in range(9_000))
         + b"u0" + b"cdeepspeed.x\nY\n)\x81h\x00b" * 300 + b"t.", "copies more than it has"),
        (b"\x80\x02ctorch\nSize\n(" + b"K\x01" * 65 + b"t\x85R.", "more than 64 dims"),
        (b"\x80\x02ctorch\nSize\n(\x8a\x09" + b"\0" * 8 + b"\x01t\x85R.", "a number of 65 bits"),
    ],
)  # fmt: skip
def test_what_a_few_bytes_ask_for(data, words):
    with pytest.raises(RefusedError, match=words):
        unpickled(data)


def test_tensors_of_many_dims():
    """A product of them takes the square of their number."""
    for count in (65, 40_000):
        data = (
            b"\x80\x02" + _BIG + b"q\x000ctorch._utils\n_rebuild_tensor\n("
            b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06tQK\0("
            + b"h\0" * count + b"t(" + b"K\0" * count + b"ttR."
        )  # fmt: skip
        with pytest.raises(RefusedError, match="more than"):
            unpickled(data, lambda _, dtype, numel: ck.Stored((numel,), dtype, None))


def test_containers_in_containers(tmp_path):
    """Each is there once and named twice: written out they are more than memory has."""

    def refused_with(groups, words):
        tree = {"state": {}, "param_groups": groups}
        with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(tree, 2))
        refused(words, fresh(), tmp_path / "a.pt")

    for make in (lambda own: [own, own], lambda own: {"a": own, "b": own}):
        own = [0.9, 0.999]
        for _ in range(100):
            own = make(own)
        refused_with([{"params": [0], "betas": own}], "nested too deep")
    own = {}
    own["own"] = own
    refused_with([{"params": [0], "betas": own}], "nested too deep")
    tree = {"a": 1}
    for _ in range(100):
        tree = {"a": tree, "b": tree}
    made = dcp._lists(tree, {})
    assert made["a"] is made["b"] and made is not tree


def test_a_record_that_is_more_when_it_is_unpacked(tmp_path):
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED):
        with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
            archive.writestr("archive/byteorder", b"\0" * 10**6, compress_type=kind)
        words = "another byte order" if kind == zipfile.ZIP_STORED else "that is not plain"
        refused(words, fresh(), tmp_path / "a.pt")


def test_deeply_nested(tmp_path):
    """Lists in lists end in a message, not in a crash."""
    data = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", data)
    refused("has no state of an optimizer", fresh(), tmp_path / "a.pt")


def storage(numel=6, key="0", size=(2, 3), stride=(3, 1), offset=0):
    class Kept:
        pass

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return ("storage", torch.FloatStorage, key, "cpu", numel) if value is Kept else None

    class Tensor:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (Kept, offset, size, stride, False, {})

    data = io.BytesIO()
    Pickler(data, 2).dump({"state": {0: {"exp_avg": Tensor()}}, "param_groups": [{"params": [0]}]})
    return data.getvalue()


def test_tensors_outside_of_their_storage(tmp_path):
    cases = [
        ({"offset": 1}, "in a storage of 6 elements"),
        ({"size": (2**40, 2**40)}, "in a storage of 6 elements"),
        ({"size": (10**6,), "stride": (0,)}, "in a storage of 6 elements"),
        ({"size": (-1, 3)}, "has a tensor of shape (-1, 3)"),
        ({"stride": (3,)}, "strides (3,)"),
        ({"offset": -4}, "offset -4"),
        ({"size": (2.0, 3)}, "has float where a number of elements is expected"),
        ({"numel": 10**9}, "has 24 bytes for a storage of 1000000000 torch.float32"),
        ({"numel": -1}, "has 24 bytes for a storage of -1"),
        ({"key": "../0"}, "lacks the storage '../0' of a tensor"),
    ]
    for change, words in cases:
        with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
            archive.writestr("archive/data.pkl", storage(**change))
            archive.writestr("archive/data/0", b"\0" * 24)
        refused(words, fresh(), tmp_path / "a.pt")


def test_a_record_that_says_that_it_is_longer(tmp_path):
    """In a folder of DCP what lies behind it is of another tensor."""
    path, size = tmp_path / "a.pt", 10**6
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", storage(numel=6))
        archive.writestr("archive/data/0", b"\0" * 24)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)  # the second of the directory
    data[entry + 20 : entry + 28] = struct.pack("<II", size, size)
    path.write_bytes(data)
    refused("ends within its record 'archive/data/0'", fresh(), path)


# --- Random changes -------------------------------------------------------------


def test_changed_bytes():
    """In a process of its own, which is watched: ``tools/fuzz/checkpoints.py``."""
    count = number(250, 10_000)
    command = [sys.executable, ROOT / "tools" / "fuzz" / "checkpoints.py", "--files", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{count} files")
    assert " refused" in done.stdout and " loaded" in done.stdout


def test_the_watch_sees(tmp_path):
    """That test can fail: a reader that runs what it is told is caught."""
    code = (
        "import sys; sys.path[:0] = ['test', 'frontend']\n"
        "import pickle, pathlib, checkpoint_fuzz as cf\n"
        "from stepc.torch.checkpoint import archives\n"
        "archives.unpickled = lambda data, vectors: (open('/dev/null', 'w'), 1 / 0)\n"
        "try:\n    cf.run(range(3), pathlib.Path(sys.argv[1]), cf.Watch())\n"
        "except (AssertionError, ZeroDivisionError) as error:\n    print('caught', error)\n"
    )
    (tmp_path / "sources").mkdir()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert "caught" in done.stdout, done.stdout + done.stderr


def test_sources_are_of_every_layout(tmp_path):
    found = {ck.layout_of(path) for path in make_sources(tmp_path)}
    assert found == set(ck.LAYOUTS)
