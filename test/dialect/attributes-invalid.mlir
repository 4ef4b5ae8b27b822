// Tests what is refused of the attributes that the generic form and the passes
// write.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{storage type 'i32' is none of f32, f64, bf16, f16}}
#role = #step.role<kind = param, name = "", storage = i32>

// -----

// expected-error @+1 {{storage type '!step.tensor<*>' is none of f32, f64, bf16, f16}}
#role = #step.role<kind = param, name = "", storage = !step.tensor<*>>

// -----

// expected-error @+1 {{storage type 'tf32' is none of f32, f64, bf16, f16}}
#role = #step.role<kind = state, name = "m", init = 0.0 : f64, storage = tf32>

// -----

// expected-error @+1 {{state 'm' needs an f64 initial value}}
#role = #step.role<kind = state, name = "m">

// -----

// expected-error @+1 {{state 'm' needs an f64 initial value}}
#role = #step.role<kind = state, name = "m", init = 0.0 : f32>

// -----

// expected-error @+1 {{'param' takes no name, initial value or guard}}
#role = #step.role<kind = param, name = "weight">

// -----

// expected-error @+1 {{'grad' takes no name, initial value or guard}}
#role = #step.role<kind = grad, name = "", init = 0.0 : f64>

// -----

// expected-error @+1 {{'fresh' is no state that can be kept}}
#role = #step.role<kind = fresh, name = "", kept = true>

// -----

// expected-error @+1 {{'fresh' is no state that can be given}}
#role = #step.role<kind = fresh, name = "", given = true>

// -----

// expected-error @+1 {{state 'm' is kept and given: nothing drops what is given}}
#role = #step.role<kind = state, name = "m", init = 0.0 : f64, kept = true, given = true>

// -----

// expected-error @+1 {{'state' speaks of no states, as a fresh does}}
#role = #step.role<kind = state, name = "m", init = 0.0 : f64, states = ["m"]>

// -----

// expected-error @+1 {{a fresh names something that is no state}}
#role = #step.role<kind = fresh, name = "", states = [1]>

// -----

// expected-error @+1 {{'count' takes no name, initial value or guard}}
#role = #step.role<kind = count, name = "", guarded = true>

// -----

// expected-error @+1 {{'count' is no tensor and has no storage type}}
#role = #step.role<kind = count, name = "", storage = f32>

// -----

// expected-error @+1 {{'fresh' is no tensor and has no storage type}}
#role = #step.role<kind = fresh, name = "", storage = f64>

// -----

// expected-error @+2 {{expected ::mlir::step::RoleKind to be one of: param, grad, state, count, fresh, position}}
// expected-error @+1 {{failed to parse Step_RoleAttr parameter 'kind'}}
#role = #step.role<kind = weight, name = "">

// -----

// expected-error @+1 {{compute type 'bf16' is neither f32 nor f64}}
#variant = #step.variant<"any", {}, bf16>

// -----

// expected-error @+2 {{expected ::mlir::step::Predicate to be one of: lt, le, gt, ge, eq, ne}}
// expected-error @+1 {{failed to parse Step_PredicateAttr parameter 'value'}}
#predicate = #step<predicate less>

// -----

step.optimizer @init {
  // expected-error @+1 {{state 'm' has an initial value that is not finite}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] = 0xFFF0000000000000) {
    step.return %p, %m
  }
}

// -----

// expected-error @+1 {{a condition compares with a value and with an extent}}
#condition = #step.condition<kind = extent, predicate = ge, value = 2, other = 1>

// -----

// expected-error @+1 {{a condition of an option has no value, no other extent, and the predicate eq or ne}}
#condition = #step.condition<kind = option, predicate = eq, other = 1>

// -----

// expected-error @+1 {{a layout shards no dim}}
#layout = #step.layout<{}>

// -----

// expected-error @+1 {{a layout is flat and shards dims too}}
#layout = #step.layout<{"flat range" = ["dp"], n = ["tp"]}>

// -----

// expected-error @+1 {{a layout has no list of axes for 'n'}}
#layout = #step.layout<{n = "dp"}>

// -----

// expected-error @+1 {{a layout has no list of axes for 'n'}}
#layout = #step.layout<{n = []}>

// -----

// expected-error @+1 {{a layout names axis 'dp' twice}}
#layout = #step.layout<{m = ["dp"], n = ["tp", "dp"]}>

// -----

// expected-error @+1 {{an entry names no axis}}
#entry = #step.entry<whole = [], partial = [], gradient = f32>

// -----

// expected-error @+1 {{an entry has 1 : i64 for an axis over which it is whole}}
#entry = #step.entry<whole = [1], partial = [], gradient = f32>

// -----

// expected-error @+1 {{an entry is partial over axis 'dp' twice}}
#entry = #step.entry<whole = [], partial = ["dp", "dp"], gradient = f32, wire = f32>

// -----

// expected-error @+1 {{an entry's gradient is partial over some of the axes over which it is whole, and not over all}}
#entry = #step.entry<whole = ["dp", "cp"], partial = ["dp"], gradient = f32, wire = f32>

// -----

// expected-error @+1 {{an entry's gradient of 'f32' crosses as f64, in which it is not summed}}
#entry = #step.entry<whole = ["dp"], partial = ["dp"], gradient = f32, wire = f64>

// -----

// expected-error @+1 {{a layout cuts over some of the axes over which the param is whole, and not over all}}
#variant = #step.variant<"any", {}, f32, <{n = ["dp"]}> entry <whole = ["dp", "cp"], partial = [], gradient = f32>>

// -----

// expected-error @+1 {{a gradient is partial over axis 'tp', over which the param is cut}}
#variant = #step.variant<"any", {}, f32, <{n = ["tp"]}> entry <whole = [], partial = ["tp"], gradient = f32, wire = f32>>

// -----

// expected-error @+1 {{an entry's gradient is partial, and has no wire}}
#entry = #step.entry<whole = [], partial = ["dp"], gradient = f32>

// -----

// expected-error @+1 {{an entry's gradient is not partial, and has a wire}}
#entry = #step.entry<whole = ["dp"], partial = [], gradient = f32, wire = f32>

// -----

// expected-error @+1 {{an entry's gradient has type 'i8', none of f32, f64, bf16, f16}}
#entry = #step.entry<whole = ["dp"], partial = [], gradient = i8>
