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
