# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interpreter of PTX: what small kernels compute, and what it refuses."""

import numpy as np
import pytest
from ptx import Fault, Kernel, Memory

TEXT = """
.visible .entry small(
	.param .u64 small_param_0
)
.reqntid 2, 1, 1
{
	.reg .b32 	%r<9>;
	ld.param.b64 	%rd1, [small_param_0];
	mov.u32 	%r1, %tid.x;
	setp.eq.b32 	%p1, %r1, 0;
	@%p1 bra 	$L_1;
	BODY
$L_1:
	ret;

}
"""


def run_small(body):
    memory = np.array([1.5, 2.5, 0, 0], np.float32)
    kernel = Kernel(TEXT.replace("BODY", body.replace(";", ";\n")), "small")
    kernel.launch(1, [memory.ctypes.data], Memory([memory]))
    return memory


def test_interpreter_computes():
    body = "ld.global.v2.b32\t{%r2, %r3}, [%rd1]; add.rn.f32\t%r4, %r2, %r3;"
    assert list(run_small(body + "st.global.b32\t[%rd1+8], %r4;")) == [1.5, 2.5, 4.0, 0]


def test_barrier_and_shuffle():
    """The second thread sees what the first wrote, and both get the other's number."""
    text = """
.visible .entry both(
	.param .u64 both_param_0
)
.reqntid 32, 1, 1
{
	ld.param.b64 	%rd1, [both_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	add.s64 	%rd3, %rd1, %rd2;
	mov.b64 	%rd4, shared_memory;
	add.s64 	%rd5, %rd4, %rd2;
	st.shared.b32 	[%rd5], %r1;
	bar.sync 	0;
	sub.s64 	%rd6, %rd4, %rd2;
	ld.shared.b32 	%r2, [%rd6+124];
	shfl.sync.bfly.b32 	%r3, %r2, 1, 31, -1;
	st.global.b32 	[%rd3], %r3;
	ret;

}
"""
    text = ".shared .align 16 .b8 shared_memory[128];\n" + text
    memory = np.zeros(32, np.uint32)
    arguments = 1, [memory.ctypes.data], Memory([memory])
    Kernel(text, "both").launch(*arguments)
    assert list(memory) == [(31 - t) ^ 1 for t in range(32)]
    with pytest.raises(Fault, match="thread 0 reads what another one"):
        Kernel(text.replace("bar.sync 	0;", ""), "both").launch(*arguments)
    with pytest.raises(Fault, match="is in no region"):
        Kernel(text.replace("+124", "+128"), "both").launch(*arguments)
    with pytest.raises(Fault, match="is not known"):
        Kernel(text.replace("31, -1", "15, -1"), "both").launch(*arguments)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("bar.sync\t0;", "threads have ended that others wait for at a barrier"),
        ("shfl.sync.bfly.b32\t%r3, %r1, 1, 31, -1;", "of its warp that are elsewhere"),
        ("add.s32\t%r3, %r7, 1;", "%r7 is read before it is set"),
        ("ld.global.b32\t%r2, [%rd1+16];", "is in no region"),
        ("ld.global.b32\t%r2, [%rd1+2];", "is no multiple of 4"),
        ("ld.global.v2.b32\t{%r2, %r3}, [%rd1+4];", "is no multiple of 8"),
        ("ld.b32\t%r2, [%rd1];", "is not of global or shared memory"),
        ("add.f32\t%r2, 0f00000000, 0f00000000;", "does not round to nearest"),
        ("sqrt.approx.f32\t%r2, 0f00000000;", "does not round to nearest"),
        ("fma.f32\t%r2, 0f00000000, 0f00000000, 0f00000000;", "does not round to nearest"),
        ("fma.rn.f16\t%r2, 0, 0, 0;", "is not known"),
        ("copysign.f32\t%r2, 0f00000000, 0f00000000;", "is not known"),
        ("st.param.b32\t[param0], 1;", "is not of global or shared memory"),
        ("add.rn.ftz.f32\t%r2, 0f00000000, 0f00000000;", "is not known"),
    ],
)
def test_interpreter_refuses(body, message):
    with pytest.raises(Fault, match=message):
        run_small(body)


@pytest.mark.parametrize(
    ("kind", "dtype", "prefix", "bits"),
    [("f32", np.float32, "0f", 12), ("f64", np.float64, "0d", 27)],
)
def test_fma_rounds_once(kind, dtype, prefix, bits):
    """x^2 - (2x - 1), of an x whose square is no number of the type."""
    x = dtype(1 + 2.0**-bits)
    operands = ", ".join(
        prefix + dtype(value).tobytes()[::-1].hex() for value in (x, x, -(2 * x - 1))
    )
    body = f"fma.rn.{kind}\t%rd4, {operands}; st.global.b{kind[1:]}\t[%rd1+8], %rd4;"
    assert run_small(body).view(dtype)[8 // dtype().itemsize] == (x - 1) ** 2 > 0


# Each thread's square of its number and 100 more, by additions as often as its number; that of
# what is given for 0 is 7.
SQUARE = """
.func square
(
	.param .b64 square_param_0,
	.param .b64 square_param_1,
	.param .b32 square_param_2
)
;
.visible .entry calls(
	.param .u64 calls_param_0
)
.reqntid 32, 1, 1
{
	ld.param.b64 	%rd1, [calls_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	add.s64 	%rd3, %rd1, %rd2;
	st.global.b32 	[%rd3], %r1;
	and.b32 	%r2, %r1, 1;
	setp.eq.b32 	%p1, %r2, 0;
	@%p1 bra 	$L__BB0_2;
	cvt.u64.u32 	%rd4, %r1;
	{ // callseq 0, 0
	.param .b64 	param0;
	.param .b64 	param1;
	.param .b32 	param2;
	st.param.b64 	[param1], %rd4;
	st.param.b32 	[param2], 100;
	st.param.b64 	[param0], %rd3;
	call.uni square, (param0, param1, param2);
	} // callseq 0
$L__BB0_2:
	add.s64 	%rd3, %rd3, 128;
	{ // callseq 1, 0
	.param .b64 	param0;
	.param .b64 	param1;
	.param .b32 	param2;
	st.param.b64 	[param0], %rd3;
	st.param.b64 	[param1], %rd2;
	st.param.b32 	[param2], %r1;
	call.uni square, (param0, param1, param2);
	} // callseq 1
	st.global.b32 	[%rd3+128], %r1;
	ret;

}
.func square(
	.param .b64 square_param_0,
	.param .b64 square_param_1,
	.param .b32 square_param_2
)
{
	.reg .pred 	%p<3>;

	ld.param.b64 	%rd1, [square_param_1];
	ld.param.b64 	%rd2, [square_param_0];
	setp.ne.b64 	%p1, %rd1, 0;
	@%p1 bra 	$L__BB1_1;
	st.global.b32 	[%rd2], 7;
	ret;
$L__BB1_1:
	ld.param.b32 	%r1, [square_param_2];
	mov.b64 	%rd3, 0;
	cvt.u32.u64 	%r2, %rd1;
$L__BB1_2:
	add.s32 	%r1, %r1, %r2;
	add.s64 	%rd3, %rd3, 1;
	setp.lt.s64 	%p2, %rd3, %rd1;
	@%p2 bra 	$L__BB1_2;
	st.global.b32 	[%rd2], %r1;
	ret;

}
"""


def run_calls(text=SQUARE):
    memory = np.zeros((3, 32), np.uint32)
    Kernel(text, "calls").launch(1, [memory.ctypes.data], Memory([memory]))
    return memory.tolist()


def test_calls():
    """By half of the threads and by all, each with parameters and as many turns of its own."""
    some, every, after = run_calls()
    assert some == [t * t + 100 if t % 2 else t for t in range(32)]
    assert every == [7] + [(4 * t) ** 2 + t for t in range(1, 32)]
    # The registers of the function are others than those of the kernel.
    assert after == list(range(32))


@pytest.mark.parametrize("name", ["square$of_f32", "$31square$of_1"])
def test_calls_of_functions_with_other_names(name):
    assert run_calls(SQUARE.replace("square", name)) == run_calls()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("st.param.b32 	[param2], 100;", "", r"%given\S* is read before it is set"),
        ("st.param.b32 	[param2]", "st.param.b64 	[param2]", "is not of global or shared"),
        ("(param0, param1, param2)", "(param0, param1)", "with other parameters than it has"),
        ("(param0, param1, param2)", "(param0, param2, param1)", "with other parameters"),
        ("(param0, param1, param2)", "(param0, param1, param3)", "with other parameters"),
        ("	.param .b32 	param2;", "", "with other parameters"),
        ("call.uni square", "call.uni cube", "no function cube"),
        ("call.uni square", "@%p1 call.uni square", "call.uni .* is not known"),
        ("call.uni square", "call.uni (result), square", "is not known"),
        ("mov.b64 	%rd3, 0;", "add.s64 	%rd3, %rd4, 0;", r"%rd4\.\d+ is read before"),
        ("mov.b64 	%rd3, 0;", "call.uni square, ();", "square calls itself"),
        ("mov.b64 	%rd3, 0;", "bar.sync 	0;", "threads have ended|wait at different"),
    ],
)
def test_calls_that_are_refused(old, new, message):
    assert old in SQUARE
    with pytest.raises(Fault, match=message):
        run_calls(SQUARE.replace(old, new))


TRUNCATE = """
.visible .entry truncate(
	.param .u64 truncate_param_0
)
.reqntid 32, 1, 1
{
	ld.param.b64 	%rd1, [truncate_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 8;
	add.s64 	%rd3, %rd1, %rd2;
	ld.global.b64 	%fd1, [%rd3];
	cvt.rzi.s64.f64 	%rd4, %fd1;
	st.global.b64 	[%rd3], %rd4;
	ret;

}
"""


def test_floats_to_integers():
    """Towards 0, and at the ends where a float is beyond them; NaN is the least."""
    given = [2.7, -2.7, 0.0, -0.0, 2.0**53, 1e300, -1e300, float("nan")]
    memory = np.resize(np.array(given), 32)
    Kernel(TRUNCATE, "truncate").launch(1, [memory.ctypes.data], Memory([memory]))
    wanted = [2, -2, 0, 0, 2**53, 2**63 - 1, -(2**63), -(2**63)]
    assert memory.view(np.int64)[:8].tolist() == wanted
