# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The double of the driver as it is at its begin, and packages compiled once."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from device_ranks import LINE, MESH, PARTLY, SPECS, compile_ranks
from device_rules import make_rule_members
from double import compile_package, get_double, make_zip
from stepc._runtime import Package
from torch_double import make_cuda


@pytest.fixture
def double():
    """One device; nothing of other tests is left, and nothing of this one after it."""
    gc.collect()
    library = get_double()
    library.reset()
    return library


@pytest.fixture(scope="session")
def members(tmp_path_factory):
    """AdamW in f32 and bf16, with the image for the double."""
    return compile_package(
        "adamw", ["--variant=param=f32", "--variant=param=bf16,grad=bf16,state=f32"],
        tmp_path_factory.mktemp("adamw"),
    )  # fmt: skip


@pytest.fixture
def package(members):
    return Package.from_bytes(make_zip(members))


@pytest.fixture
def cuda(double, tmp_path_factory, monkeypatch):
    """torch with a CUDA device; compiles what it needs once for all tests."""
    cache = tmp_path_factory.getbasetemp() / "cuda-cache"
    with make_cuda(double, tmp_path_factory.mktemp("packages"), cache, monkeypatch) as found:
        yield found


@pytest.fixture(scope="session")
def scaled_members(tmp_path_factory):
    """AdamW behind a loss scale that skips steps, and clipping."""
    folder = tmp_path_factory.mktemp("scaled")
    return make_rule_members("adamw", folder, "torch_scaler", "clip_by_norm")


@pytest.fixture
def scaled(scaled_members):
    return Package.from_bytes(make_zip(scaled_members))


@pytest.fixture(scope="session")
def dadapt_members(tmp_path_factory):
    """Statistics of groups, in f32."""
    folder = tmp_path_factory.mktemp("dadapt")
    return make_rule_members("dadapt_adam", folder, storages=["param=f32"])


@pytest.fixture(scope="session")
def lamb_members(tmp_path_factory):
    """On several ranks, behind a scale by which steps are skipped, with sums and maxima over the
    model.
    """
    fragments = ("torch_scaler", "clip_by_norm", "clip_by_inf_norm")
    return compile_ranks("lamb", tmp_path_factory.mktemp("lamb"), MESH, SPECS, *fragments)


@pytest.fixture
def lamb(lamb_members):
    return Package.from_bytes(make_zip(lamb_members))


@pytest.fixture(scope="session")
def carried_members(tmp_path_factory):
    """LARS with norms that are kept from step to step, behind a loss scale."""
    folder = tmp_path_factory.mktemp("carried")
    return make_rule_members(
        "lars", folder, "torch_scaler", storages=["param=f32"], flags=["--exclusive-writes"]
    )


@pytest.fixture
def carried(carried_members):
    return Package.from_bytes(make_zip(carried_members))


@pytest.fixture(scope="session")
def carried_parts_members(tmp_path_factory):
    """The same without rounds: it may be stepped in parts."""
    folder = tmp_path_factory.mktemp("carried-parts")
    return make_rule_members("lars", folder, storages=["param=f32"], flags=["--exclusive-writes"])


@pytest.fixture
def carried_parts(carried_parts_members):
    return Package.from_bytes(make_zip(carried_parts_members))


LARGEST = """
step.optimizer @largest {
  %top = step.statistic "top" amax over model
  %scale = step.scalars over model {
    step.report "top", %top
    step.yield %top : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %m = step.amax %g : [*]
    step.contribute %top, %m
    %u = step.mul %g, %scale : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1 : [*]
  }
}
"""


@pytest.fixture(scope="session")
def maxima_members(tmp_path_factory):
    """A maximum over the model that may be negative."""
    folder = tmp_path_factory.mktemp("maxima")
    definition = folder / "largest.mlir"
    definition.write_text(LARGEST)
    return compile_ranks(definition, folder, MESH, SPECS[:4])


@pytest.fixture
def maxima(maxima_members):
    return Package.from_bytes(make_zip(maxima_members))


@pytest.fixture(scope="session")
def partly_members(tmp_path_factory):
    """Statistics of groups on several ranks."""
    return compile_ranks("dadapt_adam", tmp_path_factory.mktemp("partly"), LINE, PARTLY)


@pytest.fixture
def partly(partly_members):
    return Package.from_bytes(make_zip(partly_members))


@pytest.fixture
def dadapt(dadapt_members):
    return Package.from_bytes(make_zip(dadapt_members))


@pytest.fixture(scope="session")
def soap_members(tmp_path_factory):
    """Bases that are decomposed, of matrices in f32."""
    return make_rule_members("soap", tmp_path_factory.mktemp("soap"), storages=["param=f32"])


@pytest.fixture(scope="session")
def shampoo_members(tmp_path_factory):
    """Roots, of eigenvalues."""
    return make_rule_members("shampoo", tmp_path_factory.mktemp("shampoo"), storages=["param=f32"])


@pytest.fixture
def shampoo(shampoo_members):
    return Package.from_bytes(make_zip(shampoo_members))


@pytest.fixture
def soap(soap_members):
    return Package.from_bytes(make_zip(soap_members))
