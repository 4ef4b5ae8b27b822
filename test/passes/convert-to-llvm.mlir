// RUN: stepc-opt --step-convert-to-llvm %s | FileCheck %s

// Memory by address becomes pointers; sqrt stays exact, max keeps signs of zero.

// CHECK-LABEL: llvm.func @memory(%{{.*}}: i64, %{{.*}}: i64)
// CHECK: llvm.inttoptr %{{.*}} : i64 to !llvm.ptr
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK: llvm.intr.sqrt(%{{.*}}) : (vector<16xf32>) -> vector<16xf32>
// CHECK: llvm.intr.maximum(%{{.*}}) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
// CHECK: llvm.store
// CHECK: "llvm.intr.prefetch"(%{{.*}}) <{cache = 1 : i32, hint = 3 : i32, rw = 1 : i32}>
// CHECK: "llvm.intr.prefetch"(%{{.*}}) <{cache = 1 : i32, hint = 3 : i32, rw = 0 : i32}>
func.func @memory(%address: i64, %index: i64) {
  %view = step.view %address : memref<?xf32>
  %i = arith.index_cast %index : i64 to index
  %x = vector.load %view[%i] : memref<?xf32>, vector<16xf32>
  %y = math.sqrt %x : vector<16xf32>
  %z = arith.maximumf %y, %x : vector<16xf32>
  vector.store %z, %view[%i] : memref<?xf32>, vector<16xf32>
  step.prefetch %address write
  step.prefetch %address
  return
}
