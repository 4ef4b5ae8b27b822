# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which code of a package a device gets, code and manifests that are refused, and processes
with no driver or another one."""

import os
import subprocess
import sys

import pytest
from device_models import DeviceMemory, Memory, Model
from double import BUILD, LIBRARY, MEMBER, ROOT, get_manifest, make_zip, with_manifest
from stepc import errors
from stepc._runtime import Package, Plan


def change_code(members, *entries):
    """The package with other code of devices: (target, file, capability)."""
    manifest = get_manifest(members)
    manifest["code"] = [code for code in manifest["code"] if "device" not in code] + [
        {"target": target, "file": file, "device": "cuda", "compute_capability": capability}
        for target, file, capability in entries
    ]
    return manifest


def load_with(members, *entries):
    changed = with_manifest(members, change_code(members, *entries))
    for _, file, _ in entries:
        changed.setdefault(file, b"no image")
    return Package.from_bytes(make_zip(changed))


def test_which_code_is_taken(members, double):
    """The cubin of the device, before any PTX; else the latest PTX; all others are no images
    here, so that taking one of them is an error."""
    good = ("compute_80", MEMBER, 80)
    for capability, others, best in (
        (90, [("compute_70", "code/x.ptx", 70), ("sm_80", "code/y.cubin", 80)], good),
        (89, [("sm_90", "code/x.cubin", 90), ("compute_90", "code/y.ptx", 90)], good),
    ):
        double.lib.cudaDoubleSetCapability(capability)
        plan = Plan(load_with(members, others[0], best, others[1]))
        plan.set_cuda(0)
        del plan
    image = {**members, "code/sm_86.cubin": members[MEMBER]}
    entries = [("compute_80", "code/z.ptx", 80), ("sm_80", "code/x.cubin", 80),
               ("sm_86", "code/sm_86.cubin", 86)]  # fmt: skip
    double.lib.cudaDoubleSetCapability(89)
    Plan(load_with(image, *entries)).set_cuda(0)


def test_no_code_for_the_device(members, package, double):
    double.lib.cudaDoubleSetCapability(75)
    plan = Plan(package)
    message = "has no code for a CUDA device of compute capability 7.5: compute_80 needs 8.0$"
    with pytest.raises(errors.PackageError, match=message):
        plan.set_cuda(0)
    two = load_with(members, ("sm_80", "code/x.cubin", 80), ("compute_90", MEMBER, 90))
    with pytest.raises(errors.PackageError, match="sm_80 needs 8.0 to 8.9; compute_90 needs 9.0$"):
        Plan(two).set_cuda(0)
    with pytest.raises(errors.PackageError, match="it has none for CUDA devices$"):
        Plan(load_with(members)).set_cuda(0)
    # The plan is one of the processor still.
    model = Model(package, Memory())
    model.plan.step()


def test_code_that_is_no_code(members, double):
    bad = load_with(members, ("compute_80", "code/bad.ptx", 80))
    with pytest.raises(errors.DeviceError) as refused:
        Plan(bad).set_cuda(0)
    assert str(refused.value) == (
        "cuModuleLoadDataEx of member 'code/bad.ptx' of package '<memory>' on CUDA device 0: "
        "CUDA_ERROR_INVALID_PTX (218): a PTX JIT compilation failed: "
        "ptxas: not an image of the double"
    )
    assert double.alive()[1:] == (0, 0, 0)


def test_a_kernel_that_is_missing(members, double):
    manifest = get_manifest(members)
    manifest["variants"][0]["scalars"]["functions"] = ["absent"]
    # Without code for the processor, which has to have it too.
    manifest["code"] = [code for code in manifest["code"] if "device" in code]
    package = Package.from_bytes(make_zip(with_manifest(members, manifest)))
    with pytest.raises(errors.DeviceError) as refused:
        Plan(package).set_cuda(0)
    assert str(refused.value) == (
        f"cuModuleGetFunction of 'absent' in member '{MEMBER}' of package '<memory>' on CUDA "
        "device 0: CUDA_ERROR_NOT_FOUND (500): named symbol not found"
    )
    assert double.alive()[1:] == (0, 0, 0)


def test_code_for_devices_alone(members, double):
    """Steps there, and says that the processor has none."""
    manifest = get_manifest(members)
    manifest["code"] = [code for code in manifest["code"] if "device" in code]
    package = Package.from_bytes(make_zip(with_manifest(members, manifest)))
    model = Model(package, DeviceMemory(double))
    model.plan.step()
    with pytest.raises(errors.PackageError, match="compute_80 needs a device, cuda"):
        Model(package, Memory())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("compute_capability", "8", "'code.1..compute_capability' is not an integer"),
        ("compute_capability", 0, "'code.1..compute_capability' is not between 10 and 9999"),
        ("file", "code/x86-64-v3.so", "'code.1..file' is neither a .ptx nor a .cubin"),
        ("file", "code/absent.ptx", "has no member 'code/absent.ptx'"),
    ],
)
def test_bad_manifests(key, value, message, members, double):
    manifest = get_manifest(members)
    manifest["code"][1][key] = value
    with pytest.raises(errors.PackageError, match=message):
        Package.from_bytes(make_zip(with_manifest(members, manifest)))


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from stepc import errors
from stepc._runtime import Package, Plan
package = Package.from_bytes(open({package!r}, "rb").read())
try:
    Plan(package).set_cuda(0)
except errors.DeviceError as error:
    print(error)
from device_models import Memory, Model
model = Model(package, Memory())
model.plan.step()
print("stepped", model.plan.info().steps)
"""


def run_script(members, tmp_path, library_path):
    path = tmp_path / "x.stepc"
    path.write_bytes(make_zip(members))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(library_path),
        "PYTHONPATH": str(ROOT / "frontend"),
        "STEPC_RUNTIME_LIBRARY": str(BUILD / "lib" / "libstepc_runtime.so"),
    }  # fmt: skip
    script = SCRIPT.format(tests=str(ROOT / "test" / "cuda"), package=str(path))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env=environment, check=True,
    )  # fmt: skip
    return run.stdout.splitlines()


def test_no_driver(members, tmp_path):
    """The processor's engine works where there is none; and where it is no driver."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "libcuda.so.1").write_bytes(b"no library")
    lines = run_script(members, tmp_path, empty)
    assert lines[0].startswith("the CUDA driver cannot be opened: ") and "libcuda.so.1" in lines[0]
    assert lines[1:] == ["stepped 1"]


def test_a_driver_without_a_function(members, tmp_path):
    source, library = tmp_path / "x.c", tmp_path / "old" / "libcuda.so.1"
    library.parent.mkdir()
    source.write_text("int cuGetErrorName, cuGetErrorString, cuInit;")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True, timeout=60)
    lines = run_script(members, tmp_path, library.parent)
    assert lines[0] == "the CUDA driver libcuda.so.1 has no function 'cuDeviceGetCount'"
    assert lines[1:] == ["stepped 1"]


def test_the_library_path_finds_the_double(members, tmp_path):
    """The way that the real one is found."""
    assert run_script(members, tmp_path, LIBRARY.parent) == ["stepped 1"]
