// RUN: stepc-opt --pass-pipeline='builtin.module(gpu.module(step-convert-to-nvvm))' %s | FileCheck %s

gpu.module @kernels {
  // Memory is global; sqrt stays exact, max keeps signs of zero.

  // CHECK-LABEL: llvm.func @memory(%{{.*}}: i64, %{{.*}}: i64)
  // CHECK: %[[GLOBAL:.*]] = llvm.inttoptr %{{.*}} : i64 to !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %[[GLOBAL]] : !llvm.ptr<1> to !llvm.ptr
  // CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
  // CHECK: llvm.intr.sqrt(%{{.*}}) : (vector<4xf32>) -> vector<4xf32>
  // CHECK: llvm.intr.maximum(%{{.*}}) : (vector<4xf32>, vector<4xf32>) -> vector<4xf32>
  // CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>
  func.func @memory(%address: i64, %index: i64) {
    %view = step.view %address : memref<?xf32>
    %i = arith.index_cast %index : i64 to index
    %x = vector.load %view[%i] {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
    %y = math.sqrt %x : vector<4xf32>
    %z = arith.maximumf %y, %x : vector<4xf32>
    vector.store %z, %view[%i] {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
    return
  }

  // Streamed vectors: 16 bytes an access, the second one 16 bytes on.

  // CHECK-LABEL: llvm.func @streamed(
  // CHECK: llvm.inline_asm has_side_effects "ld.global.cs.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l"
  // CHECK: llvm.mlir.constant(16 : i64)
  // CHECK: llvm.inline_asm has_side_effects "ld.global.cs.v4.b32
  // CHECK: llvm.bitcast %{{.*}} : vector<8xi32> to vector<8xf32>
  // CHECK: llvm.bitcast %{{.*}} : vector<8xf32> to vector<8xi32>
  // CHECK: llvm.inline_asm has_side_effects "st.global.cs.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r"
  // CHECK: llvm.inline_asm has_side_effects "st.global.cs.v4.b32
  func.func @streamed(%address: i64, %i: index) {
    %view = step.view %address : memref<?xf32>
    %x = vector.load %view[%i] {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<8xf32>
    vector.store %x, %view[%i] {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<8xf32>
    return
  }

  // What is not known to be aligned, or is no multiple of 16 bytes, is left to
  // the code generator.

  // CHECK-LABEL: llvm.func @left(
  // CHECK-NOT: inline_asm
  // CHECK: llvm.return
  func.func @left(%address: i64, %i: index) {
    %view = step.view %address : memref<?xf32>
    %x = vector.load %view[%i] {nontemporal = true} : memref<?xf32>, vector<4xf32>
    vector.store %x, %view[%i] {alignment = 8 : i64, nontemporal = true} : memref<?xf32>, vector<4xf32>
    %y = vector.load %view[%i] {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<2xf32>
    vector.store %y, %view[%i] {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<2xf32>
    return
  }

  // CHECK-LABEL: llvm.func @kernel(
  // CHECK-SAME: nvvm.kernel
  // CHECK-SAME: nvvm.reqntid = array<i32: 256, 1, 1>
  // CHECK: nvvm.read.ptx.sreg.tid.x
  // CHECK: nvvm.read.ptx.sreg.ctaid.x
  // CHECK: nvvm.read.ptx.sreg.nctaid.x
  gpu.func @kernel(%list: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %words = step.view %list : memref<?xindex>
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %n = gpu.grid_dim x
    memref.store %b, %words[%t] : memref<?xindex>
    memref.store %n, %words[%b] : memref<?xindex>
    gpu.return
  }

  // Threads of a block: memory, barriers, shuffles of whole warps.

  // CHECK: llvm.mlir.global private @shared() {addr_space = 3 : i32
  memref.global "private" @shared : memref<64xf32, #gpu.address_space<workgroup>> = uninitialized

  // CHECK-LABEL: llvm.func @together(
  // CHECK: llvm.mlir.addressof @shared : !llvm.ptr<3>
  // CHECK: llvm.store {{.*}} !llvm.ptr<3>
  // CHECK: nvvm.barrier
  // CHECK: nvvm.shfl.sync bfly
  func.func @together(%x: f32, %bits: i32, %i: index) -> i32 {
    %shared = memref.get_global @shared : memref<64xf32, #gpu.address_space<workgroup>>
    memref.store %x, %shared[%i] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %offset = arith.constant 8 : i32
    %width = arith.constant 32 : i32
    %y, %valid = gpu.shuffle xor %bits, %offset, %width : i32
    return %y : i32
  }
}
