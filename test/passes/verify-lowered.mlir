// RUN: stepc-opt --step-verify-lowered --split-input-file --verify-diagnostics %s

llvm.func @helper(%x: f32) -> f32 {
  llvm.return %x : f32
}
llvm.func @fine(%x: f32, %a: i64) -> f32 {
  %y = llvm.intr.sqrt(%x) : (f32) -> f32
  %z = llvm.fmul %y, %x : f32
  %w = llvm.call @helper(%z) : (f32) -> f32
  llvm.return %w : f32
}

// -----

// expected-error @+1 {{'llvm.func' op has no body; kernels call nothing outside}}
llvm.func @expf(f32) -> f32

// -----

llvm.func @pointer(%f: !llvm.ptr) {
  // expected-error @+1 {{'llvm.call' op calls something outside of the module}}
  llvm.call %f() : !llvm.ptr, () -> ()
  llvm.return
}

// -----

// In a function for that the runtime's routines are called.
llvm.func @routine$of_any(%f: !llvm.ptr, %n: i64) {
  llvm.call %f(%n) : !llvm.ptr, (i64) -> ()
  llvm.return
}

// -----

gpu.module @kernels {
  llvm.func @routine$of_any(%f: !llvm.ptr, %n: i64) {
    // expected-error @+1 {{'llvm.call' op calls something outside of the module}}
    llvm.call %f(%n) : !llvm.ptr, (i64) -> ()
    llvm.return
  }
}

// -----

llvm.func @exp(%x: f32) -> f32 {
  // expected-error @+1 {{'llvm.intr.exp' op is not allowed after the lower stage}}
  %y = llvm.intr.exp(%x) : (f32) -> f32
  llvm.return %y : f32
}

// -----

llvm.func @fma(%x: f32) -> f32 {
  // expected-error @+1 {{'llvm.intr.fma' op is not allowed after the lower stage}}
  %y = llvm.intr.fma(%x, %x, %x) : (f32, f32, f32) -> f32
  llvm.return %y : f32
}

// -----

// What a product is made of.
llvm.func @product$of_f32_f32_f32_(%x: f32) -> f32 {
  %y = llvm.intr.fma(%x, %x, %x) : (f32, f32, f32) -> f32
  llvm.return %y : f32
}

// -----

// Of a definition that is called product_sgd.
llvm.func @product_sgd_any_0_phase0(%x: f32) -> f32 {
  // expected-error @+1 {{'llvm.intr.fma' op is not allowed after the lower stage}}
  %y = llvm.intr.fma(%x, %x, %x) : (f32, f32, f32) -> f32
  llvm.return %y : f32
}

// -----

llvm.func @fmuladd(%x: f32) -> f32 {
  // expected-error @+1 {{'llvm.intr.fmuladd' op is not allowed after the lower stage}}
  %y = llvm.intr.fmuladd(%x, %x, %x) : (f32, f32, f32) -> f32
  llvm.return %y : f32
}

// -----

llvm.func @fast(%x: f32) -> f32 {
  // expected-error @+1 {{'llvm.fadd' op has fast-math flags, which change values}}
  %y = llvm.fadd %x, %x {fastmathFlags = #llvm.fastmath<reassoc>} : f32
  llvm.return %y : f32
}

// -----

llvm.func @f16(%bits: i16) -> i16 {
  %x = llvm.bitcast %bits : i16 to f16
  %y = llvm.fpext %x : f16 to f32
  %z = llvm.fptrunc %y : f32 to f16
  %w = llvm.bitcast %z : f16 to i16
  llvm.return %w : i16
}

// -----

llvm.func @f16_of_f64(%x: f64) -> i16 {
  // expected-error @+1 {{'llvm.fptrunc' op computes in f16}}
  %y = llvm.fptrunc %x : f64 to f16
  %z = llvm.bitcast %y : f16 to i16
  llvm.return %z : i16
}

// -----

llvm.func @f16_sum(%bits: vector<8xi16>) -> vector<8xi16> {
  %x = llvm.bitcast %bits : vector<8xi16> to vector<8xf16>
  // expected-error @+1 {{'llvm.fadd' op computes in f16}}
  %y = llvm.fadd %x, %x : vector<8xf16>
  %z = llvm.bitcast %y : vector<8xf16> to vector<8xi16>
  llvm.return %z : vector<8xi16>
}

// -----

llvm.func @bf16(%x: f32) -> i16 {
  // expected-error @+1 {{'llvm.fptrunc' op computes in bf16}}
  %y = llvm.fptrunc %x : f32 to bf16
  %z = llvm.bitcast %y : bf16 to i16
  llvm.return %z : i16
}

// -----

llvm.func @bf16_in(%bits: i16) -> f32 {
  %x = llvm.bitcast %bits : i16 to bf16
  // expected-error @+1 {{'llvm.fpext' op computes in bf16}}
  %y = llvm.fpext %x : bf16 to f32
  llvm.return %y : f32
}

// -----

// expected-error @+1 {{'llvm.mlir.global' op is not allowed after the lower stage}}
llvm.mlir.global internal @state(0.0 : f32) : f32

// -----

// expected-error @+1 {{'func.func' op is not allowed after the lower stage}}
func.func @left() {
  return
}

// -----

// Of a device besides: what its module, threads and memory need.
gpu.module @kernels {
  llvm.mlir.global private @shared() {addr_space = 3 : i32} : !llvm.array<8 x f64> {
    %0 = llvm.mlir.undef : !llvm.array<8 x f64>
    llvm.return %0 : !llvm.array<8 x f64>
  }
  llvm.func @together(%x: i32, %offset: i32, %mask: i32) -> i32 {
    %p = llvm.mlir.addressof @shared : !llvm.ptr<3>
    llvm.store %x, %p : i32, !llvm.ptr<3>
    nvvm.barrier0
    %y = nvvm.shfl.sync bfly %mask, %x, %offset, %mask : i32 -> i32
    llvm.return %y : i32
  }
  llvm.func @helper() {
    llvm.return
  }
  llvm.func @fine(%a: i64) {
    %t = nvvm.read.ptx.sreg.tid.x : i32
    %g = llvm.inttoptr %a : i64 to !llvm.ptr<1>
    %p = llvm.addrspacecast %g : !llvm.ptr<1> to !llvm.ptr
    %x = llvm.inline_asm has_side_effects "ld.global.cs.b32 $0, [$1];", "=r,l" %a : (i64) -> i32
    llvm.inline_asm has_side_effects "st.global.cs.b32 [$0], $1;", "l,r" %a, %x : (i64, i32) -> ()
    llvm.call @helper() : () -> ()
    llvm.return
  }
  llvm.func @approximate(%x: f32) {
    // expected-error @+1 {{'llvm.inline_asm' op is not allowed after the lower stage}}
    %y = llvm.inline_asm "rsqrt.approx.f32 $0, $1;", "=f,f" %x : (f32) -> f32
    llvm.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{'llvm.func' op has no body; kernels call nothing outside}}
  llvm.func @__nv_expf(f32) -> f32
}

// -----

llvm.func @threads() {
  // expected-error @+1 {{'nvvm.read.ptx.sreg.tid.x' op is not allowed after the lower stage}}
  %t = nvvm.read.ptx.sreg.tid.x : i32
  llvm.return
}

// -----

// Memory of all blocks would be state.
gpu.module @kernels {
  // expected-error @+1 {{'llvm.mlir.global' op is not allowed after the lower stage}}
  llvm.mlir.global private @state() : f64 {
    %0 = llvm.mlir.undef : f64
    llvm.return %0 : f64
  }
}

// -----

llvm.func @barrier() {
  // expected-error @+1 {{'nvvm.barrier0' op is not allowed after the lower stage}}
  nvvm.barrier0
  llvm.return
}
