// RUN: stepc-opt --step-expand-bf16 --canonicalize --split-input-file --verify-diagnostics %s | FileCheck %s

// Bits in, bits out: no bf16 value is left, and no conversion.

// CHECK-LABEL: func.func @widen(%{{.*}}: vector<16xi16>)
// CHECK-NOT: bf16
// CHECK: arith.extui %{{.*}} : vector<16xi16> to vector<16xi32>
// CHECK: arith.shli
// CHECK: arith.bitcast %{{.*}} : vector<16xi32> to vector<16xf32>
// CHECK-NEXT: return
func.func @widen(%bits: vector<16xi16>) -> vector<16xf32> {
  %x = arith.bitcast %bits : vector<16xi16> to vector<16xbf16>
  %y = arith.extf %x : vector<16xbf16> to vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @narrow(%{{.*}}: vector<16xf32>)
// CHECK-NOT: bf16
// CHECK: return %{{.*}} : vector<16xi16>
func.func @narrow(%x: vector<16xf32>) -> vector<16xi16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  %bits = arith.bitcast %y : vector<16xbf16> to vector<16xi16>
  return %bits : vector<16xi16>
}

// maximumf is left alone: upstream's arith-expand makes -0 of max(+0, -0).

// CHECK-LABEL: func.func @maximum
// CHECK: arith.maximumf
func.func @maximum(%x: f32, %y: f32) -> f32 {
  %z = arith.maximumf %x, %y : f32
  return %z : f32
}

// -----

func.func @wide(%x: f64) -> bf16 {
  // expected-error @+1 {{'arith.truncf' op converts between bf16 and f64, which is not supported}}
  %y = arith.truncf %x : f64 to bf16
  return %y : bf16
}
