// RUN: split-file %s %t
// RUN: sed 's/LAYOUT/m = ["tp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-phases | FileCheck %s --check-prefix=COLUMNS
// RUN: sed 's/LAYOUT/n = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-phases | FileCheck %s --check-prefix=ROWS
// RUN: sed 's/LAYOUT/m = ["tp"], n = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-phases | FileCheck %s --check-prefix=BOTH
// RUN: sed 's/LAYOUT/"flat range" = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-phases | FileCheck %s --check-prefix=FLAT
// RUN: sed 's/LAYOUT/"...b" = ["ep"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-phases | FileCheck %s --check-prefix=ITEMS
// RUN: stepc-opt --step-insert-collectives --step-form-phases %t/lamb.mlir | FileCheck %s --check-prefix=LAMB
// RUN: stepc-opt --step-insert-collectives --step-form-phases %t/clipped.mlir | FileCheck %s --check-prefix=CLIPPED
// RUN: stepc-opt --step-insert-collectives --step-form-phases %t/skipped.mlir | FileCheck %s --check-prefix=SKIPPED
// RUN: stepc-opt --step-insert-collectives --step-form-phases %t/elements.mlir | FileCheck %s --check-prefix=ELEMENTS

// Columns on other ranks: rows are parts of sums, and their mean is whole; what needs no
// rank is done before the round.
// COLUMNS: step.program
// COLUMNS-SAME: <"exchange0", ["B", "N"], f64, true, <0, ["m"], sum>>
// COLUMNS-SAME: <"exchange3", ["1"], f64, true, <1, ["m"], sum>>
// COLUMNS: step.combine "partial0" sum of tiles to rows send "exchange0"{{$}}
// COLUMNS: step.combine "partial1" sum of tiles to columns mean in "temp1"{{$}}
// COLUMNS: step.phase @factored_small0 {{.*}}space = #step<space columns>
// COLUMNS: step.receive "exchange0" sum of tiles to rows mean in "temp0" {segment = 1 : i64}
// COLUMNS: step.phase @factored_small1 {{.*}}segment = 1 : i64, space = #step<space rows>
// COLUMNS: step.combine "partial2" sum of rows to items mean in "temp2" {segment = 1 : i64}
// COLUMNS: step.phase @factored_phase1 {{.*}}segment = 1
// COLUMNS: step.combine "partial3" sum of tiles to tensor send "exchange3" {segment = 1 : i64}
// COLUMNS: step.receive "exchange3" sum of tiles to tensor mean slot 0 {segment = 2 : i64}
// COLUMNS: step.phase @factored_phase2 {{.*}}segment = 2

// Rows on other ranks: columns are parts, and so is the mean of all rows, which shares
// their round.
// ROWS: step.program
// ROWS-SAME: <"temp4", ["B", "N"], f32, true>
// ROWS-SAME: <"exchange1", ["B", "M"], f64, true, <0, ["n"], sum>>
// ROWS-SAME: <"exchange2", ["B"], f64, true, <0, ["n"], sum>>
// ROWS-SAME: <"exchange3", ["1"], f64, true, <1, ["n"], sum>>
// ROWS: step.combine "partial0" sum of tiles to rows mean in "temp0"{{$}}
// ROWS: step.combine "partial1" sum of tiles to columns send "exchange1"{{$}}
// ROWS: step.combine "partial2" sum of rows to items send "exchange2"{{$}}
// ROWS: step.receive "exchange1" sum of tiles to columns mean in "temp1" {segment = 1 : i64}
// ROWS: step.receive "exchange2" sum of rows to items mean in "temp2" {segment = 1 : i64}
// ROWS: step.combine "partial3" sum of tiles to tensor send "exchange3" {segment = 1 : i64}
// ROWS: step.phase @factored_phase2 {{.*}}segment = 2

// Both: the mean of all rows waits for the rows.
// BOTH: step.program
// BOTH-SAME: <"exchange0", ["B", "N"], f64, true, <0, ["m"], sum>>
// BOTH-SAME: <"exchange1", ["B", "M"], f64, true, <0, ["n"], sum>>
// BOTH-SAME: <"exchange2", ["B"], f64, true, <1, ["n"], sum>>
// BOTH-SAME: <"exchange3", ["1"], f64, true, <2, ["n", "m"], sum>>
// BOTH: step.combine "partial2" sum of rows to items send "exchange2" {segment = 1 : i64}
// BOTH: step.receive "exchange2" sum of rows to items mean in "temp2" {segment = 2 : i64}
// BOTH: step.phase @factored_phase1 {{.*}}segment = 2
// BOTH: step.phase @factored_phase2 {{.*}}segment = 3

// A flat range has leaves of the rows and blocks that it touches; whole rows and columns
// cross, and what is had from them is not reduced again.
// FLAT: step.program
// FLAT-SAME: <"partial0", ["R", "ML"], f64, false>
// FLAT-SAME: <"exchange0", ["B", "N"], f64, true, <0, ["flat range"], sum>>
// FLAT-SAME: <"partial1", ["L", "M"], f64, false>
// FLAT-SAME: <"exchange1", ["B", "M"], f64, true, <0, ["flat range"], sum>>
// FLAT-SAME: <"partial2", ["B", "N1"], f64, false>
// FLAT-SAME: <"exchange3", ["1"], f64, true, <1, ["flat range"], sum>>
// FLAT: step.combine "partial2" sum of rows to items mean in "temp2" {segment = 1 : i64}
// FLAT: step.phase @factored_phase2 {{.*}}segment = 2

// Items on other ranks: only what is of the whole tensor crosses.
// ITEMS: step.program
// ITEMS-SAME: <"exchange3", ["1"], f64, true, <0, ["...b"], sum>>
// ITEMS-COUNT-1: send
// ITEMS-NOT: send
// ITEMS: step.phase @factored_phase2 {{.*}}segment = 1

//--- factored.mlir
step.optimizer @factors {
  step.rule @factored(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32, %r: state "r"[...b, n, 1] as f32, %c: state "c"[...b, 1, m] as f32)
      variant <"matrix", {}, f32, <{LAYOUT}>> {
    %rows = step.mean %g over [m] : [...b, n, m]
    %cols = step.mean %g over [n] : [...b, n, m]
    %r1 = step.add %r, %rows : [...b, n, 1]
    %c1 = step.add %c, %cols : [...b, 1, m]
    %mean = step.mean %r1 over [n] : [...b, n, 1]
    %a = step.mul %g, %c1 : [...b, n, m], [...b, 1, m]
    %b = step.mul %a, %r1 : [...b, n, m], [...b, n, 1]
    %u = step.mul %b, %mean : [...b, n, m], [...b, 1, 1]
    %uu = step.mul %u, %u : [...b, n, m]
    %rms = step.mean %uu : [...b, n, m]
    %v = step.mul %u, %rms : [...b, n, m], f64
    %p1 = step.sub %p, %v : [...b, n, m]
    step.return %p1, %r1, %c1 : [...b, n, m], [...b, n, 1], [...b, 1, m]
  }
}

// Both norms cross in one round, a maximum as an integer, and the second traversal
// follows. Of the twin without a layout nothing crosses.
// LAMB: step.program @lamb_any_0
// LAMB-NOT: exchange
// LAMB: step.program @lamb_any_1 {{.*}}<{"flat range" = ["dp"]}>
// LAMB-SAME: <"partial0", ["B", "N", "ML"], f64, false>
// LAMB-SAME: <"exchange0", ["1"], f64, true, <0, ["flat range"], sum>>
// LAMB-SAME: <"exchange1", ["1"], f64, true, <0, ["flat range"], amax>>
// LAMB: step.combine "partial0" sum of tiles to tensor send "exchange0"{{$}}
// LAMB: step.combine "partial1" amax of tiles to tensor send "exchange1"{{$}}
// LAMB: step.receive "exchange0" sum of tiles to tensor slot 0 {segment = 1 : i64}
// LAMB: step.receive "exchange1" amax of tiles to tensor slot 1 {segment = 1 : i64}
// LAMB: step.tensor_scalars @lamb_any_1_small0 {{.*}}segment = 1
// LAMB: step.phase @lamb_any_1_phase1 {{.*}}segment = 1
// LAMB-NOT: segment = 2

//--- lamb.mlir
step.optimizer @lamb {
  step.rule @lamb_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %pp = step.mul %p, %p : [*]
    %a = step.sum %pp : [*]
    %b = step.amax %g : [*]
    %ratio = step.div %a, %b : f64
    %u = step.mul %g, %ratio : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
  step.rule @lamb_any_1(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}>> {
    %pp = step.mul %p, %p : [*]
    %a = step.sum %pp : [*]
    %b = step.amax %g : [*]
    %ratio = step.div %a, %b : f64
    %u = step.mul %g, %ratio : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}

// What goes to a statistic is a part of it; a sum that the rule uses too is whole, in the
// segment after it has crossed.
// CLIPPED: step.scalars over model attributes {round = 0 : i64}
// CLIPPED: step.program @clipped_any_0 {{.*}}contributions = array<i64: 0, 0, 0>, partial_statistics = array<i64: 0, 0>
// CLIPPED-NOT: exchange
// CLIPPED: step.combine "partial0" sum of tiles to tensor slot 0{{$}}
// CLIPPED: step.phase @clipped_any_0_phase1 {{.*}}segment = 1
// CLIPPED: step.program @clipped_whole_1 {{.*}}contributions = array<i64: 1, 0, 1>
// CLIPPED-NOT: partial_statistics
// CLIPPED: step.combine "partial0" sum of tiles to tensor send "exchange0"
// CLIPPED: step.receive "exchange0" sum of tiles to tensor slot 0 {segment = 1 : i64}

//--- clipped.mlir
step.optimizer @clipped {
  %norm2 = step.statistic "norm2" sum over model
  %other = step.statistic "other" sum over model
  %coef = step.scalars over model {
    %c = step.sqrt %norm2 : f64
    step.yield %c : f64
  }
  %late = step.scalars over model {
    %c = step.sqrt %other : f64
    step.report "other", %c
    step.yield %c : f64
  }
  step.rule @clipped_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"*" = ["dp"]}>> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %norm2, %s
    %g1 = step.mul %g, %coef : [*], f64
    %p1 = step.sub %p, %g1 : [*]
    step.return %p1
  }
  step.rule @clipped_whole_1(%p: param[n] as f32, %g: grad[n] as f32) variant <"whole", {}, f32, <{n = ["dp"]}>> {
    %gg = step.mul %g, %g : [n]
    %s = step.sum %gg : [n]
    step.contribute %other, %s
    %g1 = step.mul %g, %s : [n], f64
    %p1 = step.sub %p, %g1 : [n]
    step.return %p1 : [n]
  }
}

// What crosses is needed before the round that may skip the step, but the state that it
// is had from is not written before.
// SKIPPED: step.program @skipped
// SKIPPED: step.phase @skipped_small0 {{.*}}name = "r", {{[^>]*}}>, {{[^>]*}}reads = true, writes = false>
// SKIPPED: step.combine "partial{{[0-9]}}" sum of rows to items send
// SKIPPED: step.phase @skipped_small1 {{.*}}name = "r", {{[^>]*}}>, {{[^>]*}}writes = true>{{.*}}segment = 1

//--- skipped.mlir
step.optimizer @skip {
  %most = step.statistic "most" amax over model
  step.scalars over model {
    %inf = step.constant 0x7FF0000000000000
    %over = step.compare ge, %most, %inf : f64
    step.skip_if %over
    step.yield
  }
  step.rule @skipped(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %top = step.amax %g : [n, m]
    step.contribute %most, %top
    %rows = step.mean %g over [m] : [n, m]
    %r1 = step.add %r, %rows : [n, 1]
    %mean = step.mean %r1 over [n] : [n, 1]
    %u = step.mul %g, %mean : [n, m], [1, 1]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
}

// Elementwise programs lose their layout, whatever another rule exchanges, and of twins one
// is left; another storage is no twin.
// ELEMENTS: step.program @plain variant <"any", {}, f32> {{.*}}storage = f32
// ELEMENTS: step.program @half variant <"any", {}, f32> {{.*}}storage = bf16
// ELEMENTS-NOT: space tiles
// ELEMENTS: step.program @matrix variant <"matrix", {}, f32, <{n = ["dp"]}>>
// ELEMENTS: send "exchange0"
// ELEMENTS-NOT: step.program

//--- elements.mlir
step.optimizer @elements {
  step.rule @plain(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @columns(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"*" = ["tp"]}>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @half(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}>> {
    %p1 = step.sub %p, %g : [*]
    %p2 = step.round %p1 to bf16 : [*]
    step.return %p2
  }
  step.rule @matrix(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %s = step.sum %g : [n, m]
    %p1 = step.mul %p, %s : [n, m], f64
    step.return %p1 : [n, m]
  }
}
