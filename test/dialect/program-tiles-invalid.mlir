// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

// Programs of several phases that do not verify.

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op accumulates in 'other', which is not in the program's workspace}}
    step.phase @sweep slots 0 operands [#p] attributes {accumulators = [#step.accumulator<combiner = sum, direction = row, partial = "other">], space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield %p : f32
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op has 0 slots of the tensor; the program has 1}}
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>} {
    ^bb0(%p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @tiles slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op traverses elements in a program of other spaces}}
    step.phase @sweep slots 0 operands [#p] attributes {tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op works on 'gone', which the program does not have in that storage and shape}}
    step.phase @sweep slots 0 operands [#t] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.combine' op works on 'other', which is not in the program's workspace}}
    step.combine "other" sum of tiles to tensor slot 0
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.combine' op writes slot 1 of the tensor, which has 1}}
    step.combine "partial0" sum of tiles to tensor slot 1
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.combine' op names not one of a temp, a slot and an exchange}}
    step.combine "partial0" sum of tiles to tensor
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.combine' op combines to rows in a slot}}
    step.combine "partial0" sum of tiles to rows slot 0
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op takes 0 and 2 slots; the program has 0 and 1}}
    step.tensor_scalars @small slots 0, 2 writes [] {
    ^bb0(%a: f64, %b: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op takes other arguments than 0 and 1 slots}}
    step.tensor_scalars @small slots 0, 1 writes [] {
    ^bb0(%a: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op does not yield an f64 for each of 1 slots}}
    step.tensor_scalars @small slots 0, 1 writes [0] {
    ^bb0(%a: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op writes slot 3 of 1}}
    step.tensor_scalars @small slots 0, 1 writes [3] {
    ^bb0(%a: f64):
      step.yield %a : f64
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op has an empty tensor_scalars name}}
    "step.tensor_scalars"() <{sym_name = "", num_slots = 0 : i64, tensor_slots = 1 : i64, writes = array<i64>}> ({
    ^bb0(%a: f64):
      step.yield
    }) : () -> ()
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.tensor_scalars' op does not end in 'step.yield'}}
    step.tensor_scalars @small slots 0, 1 writes [] {
    ^bb0(%a: f64):
      "test.terminator"() : () -> ()
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#t = #step.operand<kind = temp, name = "gone", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @late slots 0 operands [#p] attributes {segment = 1 : i64, space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op is of segment 0 and stands after one of segment 1}}
    step.phase @early slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32, <{"*" = ["dp"]}>>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"exchange0", ["1"], f64, true, <0, ["*"], sum>>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.receive' op names both or neither of a temp and a slot}}
    step.receive "exchange0" sum of tiles to tensor
  }
}

// -----

#variant = #step.variant<"any", {}, f32, <{"*" = ["dp"]}>>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"exchange0", ["1"], f64, true, <0, ["*"], sum>>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.receive' op receives rows in a slot}}
    step.receive "exchange0" sum of tiles to rows slot 0
  }
}

// -----

#variant = #step.variant<"any", {}, f32, <{"*" = ["dp"]}>>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"exchange0", ["1"], f64, true, <0, ["*"], sum>>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.receive' op works on 'exchange1', which is not in the program's workspace}}
    step.receive "exchange1" sum of tiles to tensor slot 0
  }
}

// -----

#variant = #step.variant<"any", {}, f32, <{"*" = ["dp"]}>>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"exchange0", ["1"], f64, true, <0, ["*"], sum>>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.receive' op writes slot 1 of the tensor, which has 1}}
    step.receive "exchange0" sum of tiles to tensor slot 1
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op is left out by slot 1 of 1 of the tensor}}
    step.phase @sweep slots 0 unless 1 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op is left out, but is not of tiles or writes operands}}
    step.phase @sweep slots 0 unless 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield %p : f32
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.combine' op combines to rows, which cannot be left out}}
    step.combine "partial0" sum of tiles to rows send "exchange0" unless 0
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"whole0", ["1"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @sweep slots 0 operands [#p] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %p: f32):
      step.yield
    }
    // expected-error @+1 {{'step.receive' op receives nothing}}
    "step.receive"() <{combiner = #step<combiner sum>, exchanges = [], level = #step<level tensor>, segment = 0 : i64, slot = 0 : i64, space = #step<space tiles>}> : () -> ()
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @opt {
  step.program @any_0 variant #variant operands [#p] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op is trailing, but is not of tiles or may be left out}}
    step.phase @sweep trailing slots 0 operands [#p] {
    ^bb0(%p: f32):
      step.yield %p : f32
    }
  }
}
