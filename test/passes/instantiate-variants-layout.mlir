// RUN: split-file %s %t
// RUN: stepc-opt --step-instantiate-variants='variants=layout.-2=dp;layout.-1=tp+cp' %t/ranks.mlir | FileCheck %s --check-prefix=DIMS
// RUN: stepc-opt --step-instantiate-variants='variants=layout.flat=dp' %t/ranks.mlir | FileCheck %s --check-prefix=FLAT
// RUN: stepc-opt --step-instantiate-variants='variants=param=f32,layout.-1=dp;rank=1,layout.-2=dp;rank=2,layout.-3=dp;rank=3,layout.-4=dp;rank=4' %t/ranks.mlir | grep -o 'step.rule.*variant.*' | FileCheck %s --check-prefix=RANKS
// RUN: stepc-opt --step-instantiate-variants='variants=param=f32,layout.-2=dp,layout.-1=tp,layout.flat=dp' %t/owned.mlir 2>%t/remarks | FileCheck %s --check-prefix=OWNED
// RUN: FileCheck %s --check-prefix=REMARKS < %t/remarks
// RUN: stepc-opt --step-instantiate-variants='variants=param=f32,layout.-2=dp,layout.-1=tp,layout.flat=dp' %t/matrices.mlir 2>%t/whole | FileCheck %s --check-prefix=MATRICES
// RUN: FileCheck %s --check-prefix=WHOLE < %t/whole
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.rows=dp' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=DIM
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.0=dp' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=FIRST
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.-1=tp;layout.flat=dp' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.flat=dp;layout.-1=tp' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=AFTER
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.-1=dp;layout.-2=dp' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not stepc-opt --step-instantiate-variants='variants=layout.-1=tp+' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not stepc-opt --step-instantiate-variants='variants=rank=0' %t/ranks.mlir 2>&1 | FileCheck %s --check-prefix=RANK

// Dims count from the last, those that a rule does not name are its leading ones or
// nobody's.
// DIMS: @ranks_any_0{{.*}}<"any", {}, f32, <{"*" = ["dp", "tp", "cp"]}>>
// DIMS: @ranks_vector_1{{.*}}<"vector", {}, f32, <{n = ["tp", "cp"]}>>
// DIMS: @ranks_matrix_2{{.*}}<"matrix", {}, f32, <{m = ["tp", "cp"], n = ["dp"]}>>
// DIMS: @ranks_items_3{{.*}}<"items", {}, f32, <{"...b" = ["dp"], m = ["tp", "cp"]}>>
// FLAT-COUNT-4: f32, <{"flat range" = ["dp"]}>>

// A request for tensors of a rank makes no variants of rules that they cannot have, and
// what is made is made once.
// RANKS: any_0{{.*}}f32>
// RANKS-NEXT: vector_1{{.*}}f32>
// RANKS-NEXT: matrix_2{{.*}}f32>
// RANKS-NEXT: items_3{{.*}}f32>
// RANKS-NEXT: any_4{{.*}}<{"*" = ["dp"]}>>
// RANKS-NEXT: vector_5{{.*}}<{n = ["dp"]}>>
// RANKS-NEXT: items_6{{.*}}<{m = ["dp"]}>>
// RANKS-NEXT: matrix_7{{.*}}<{n = ["dp"]}>>
// RANKS-NEXT: items_8{{.*}}<{"...b" = ["dp"]}>>
// RANKS-NOT: variant

// What a rule cannot say of parts is stepped whole, by one variant for all layouts; what
// it can, and ranges of elements, are shared.
// OWNED: @owned_square_0{{.*}}<"square", {}, f32> attributes {owned_layouts = [#step.layout<{n = ["dp"]}>, #step.layout<{n = ["tp"]}>]}
// OWNED: @owned_row_1{{.*}}<"row", {}, f32> attributes {owned_layouts = [#step.layout<{"1" = ["dp"]}>]}
// OWNED: @owned_elements_2{{.*}}<"elements", {}, f32>
// OWNED-NOT: attributes
// OWNED: @owned_row_{{[0-9]+}}{{.*}}f32, <{m = ["tp"]}>>
// OWNED: @owned_square_{{[0-9]+}}{{.*}}f32, <{"flat range" = ["dp"]}>>
// REMARKS: remark: rule 'square' has a param of '!step.tensor<n, n>' with 'n' twice, which cannot be sharded over dp: one rank steps the whole tensor, and sends the others their parts
// REMARKS: remark: rule 'row' has a param of '!step.tensor<1, m>' with '1', which cannot be sharded over dp: one rank
// REMARKS: remark: rule 'square' {{.*}} with 'n' twice, which cannot be sharded over tp: one rank
// REMARKS-NOT: remark

// So is what needs whole matrices, ranges of elements included. What asks for extents is
// shared.
// MATRICES: @matrices_product_0{{.*}}<"product", {}, f32> attributes {owned_layouts = [#step.layout<{n = ["dp"]}>, #step.layout<{m = ["tp"]}>, #step.layout<{"flat range" = ["dp"]}>]}
// MATRICES: @matrices_gram_1{{.*}}<"gram", {}, f32> attributes {owned_layouts = [
// MATRICES: @matrices_extent_2{{.*}}<"extent", {}, f32> {
// MATRICES: @matrices_power_3{{.*}}<"power", {}, f32> attributes {owned_layouts = [
// MATRICES-NOT: @matrices_product_
// MATRICES-NOT: @matrices_gram_
// MATRICES-NOT: @matrices_power_
// MATRICES: @matrices_extent_4{{.*}}f32, <{n = ["dp"]}>>
// MATRICES: @matrices_extent_5{{.*}}f32, <{m = ["tp"]}>>
// MATRICES: @matrices_extent_6{{.*}}f32, <{"flat range" = ["dp"]}>>
// WHOLE: remark: rule 'product' has a param of '!step.tensor<n, m>' whose matrices it needs whole, which cannot be sharded over dp: one rank steps the whole tensor, and sends the others their parts
// WHOLE: remark: rule 'gram' has a param of '!step.tensor<...b, n, m>' whose matrices it needs whole, which cannot be sharded over dp: one rank
// WHOLE: remark: rule 'power' {{.*}} whose matrices it needs whole, which cannot be sharded over dp: one rank
// WHOLE: remark: rule 'product' {{.*}} whose matrices it needs whole, which cannot be sharded over tp: one rank
// WHOLE: remark: rule 'gram' {{.*}} whose matrices it needs whole, which cannot be sharded over tp: one rank
// WHOLE: remark: rule 'power' {{.*}} whose matrices it needs whole, which cannot be sharded over tp: one rank
// WHOLE: remark: rule 'product' {{.*}} whose matrices it needs whole, which cannot be sharded over dp: one rank
// WHOLE: remark: rule 'gram' {{.*}} whose matrices it needs whole, which cannot be sharded over dp: one rank
// WHOLE: remark: rule 'power' {{.*}} whose matrices it needs whole, which cannot be sharded over dp: one rank
// WHOLE-NOT: remark

// DIM: got a variant request with 'layout.rows=dp': dim 'rows' is neither flat nor a negative number
// FIRST: got a variant request with 'layout.0=dp': dim '0' is neither flat nor a negative number
// BOTH: got a variant request with 'layout.flat=dp': a layout is flat or shards dims, once each
// AFTER: got a variant request with 'layout.-1=tp': a layout is flat or shards dims, once each
// TWICE: got a variant request with 'layout.-2=dp': axis 'dp' shards twice
// EMPTY: got a variant request with 'layout.-1=tp+': '' is no name
// RANK: got a variant request with 'rank=0': '0' is no rank above 0

//--- ranks.mlir
step.optimizer @ranks {
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
  step.rule @vector(%p: param[n], %g: grad[n]) {
    step.return %p : [n]
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    step.return %p : [n, m]
  }
  step.rule @items(%p: param[...b, m], %g: grad[...b, m]) {
    step.return %p : [...b, m]
  }
}

//--- owned.mlir
step.optimizer @owned {
  step.rule @square(%p: param[n, n], %g: grad[n, n]) {
    %s = step.sum %g : [n, n]
    %p1 = step.mul %p, %s : [n, n], f64
    step.return %p1 : [n, n]
  }
  step.rule @row(%p: param[1, m], %g: grad[1, m]) {
    %s = step.sum %g over [m] : [1, m]
    %p1 = step.mul %p, %s : [1, m], [1, 1]
    step.return %p1 : [1, m]
  }
  step.rule @elements(%p: param[1, m, m], %g: grad[1, m, m]) {
    step.return %p : [1, m, m]
  }
}

//--- matrices.mlir
step.optimizer @matrices {
  step.rule @product(%p: param[n, m], %g: grad[n, m]) {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %p1 = step.matmul %gg, %p : [n, n], [n, m]
    step.return %p1 : [n, m]
  }
  step.rule @gram(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n]) {
    %l1 = step.neg %l : [...b, n, n]
    step.return %p, %l1 : [...b, n, m], [...b, n, n]
  }
  step.rule @extent(%p: param[n, m], %g: grad[n, m]) {
    %n = step.extent n
    %p1 = step.mul %g, %n : [n, m], f64
    step.return %p1 : [n, m]
  }
  step.rule @power(%p: param[n, n], %g: grad[n, n]) {
    %gg = step.matmul %g, %g : [n, n]
    %p1 = step.sub %p, %gg : [n, n]
    step.return %p1 : [n, n]
  }
}
