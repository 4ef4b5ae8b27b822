// Tests that a float prints as the shortest decimal that reads back as the same
// bits, in a form that MLIR takes for a float.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @shortest
step.optimizer @shortest {
  // CHECK: = 0.1{{$}}
  %0 = step.hyper "tenth" = 0.1
  // CHECK: = 0.1{{$}}
  %1 = step.hyper "tenth in full" = 0.1000000000000000055511151231257827
  // CHECK: = 0.30000000000000004{{$}}
  %2 = step.hyper "0.1 + 0.2" = 0.30000000000000004
  // CHECK: = 1.0{{$}}
  %3 = step.hyper "one" = 1.0
  // CHECK: = -0.0{{$}}
  %4 = step.hyper "minus zero" = -0.0
  // CHECK: = 1.0e-08{{$}}
  %5 = step.hyper "eps" = 0.00000001
  // CHECK: = 1.0e+22{{$}}
  %6 = step.hyper "a large integer" = 10000000000000000000000.0
  // CHECK: = 1234567.0{{$}}
  %7 = step.hyper "a small integer" = 1234567.0
  // CHECK: = 1.7976931348623157e+308{{$}}
  %8 = step.hyper "the largest" = 1.7976931348623157e308
  // CHECK: = 5.0e-324{{$}}
  %9 = step.hyper "the smallest" = 4.9e-324
  // CHECK: = 0.999{{$}}
  %10 = step.hyper "by its bits" = 0x3FEFF7CED916872B
}

// CHECK-LABEL: step.optimizer @not_finite
step.optimizer @not_finite {
  // CHECK: step.constant 0x7FF0000000000000{{$}}
  %0 = step.constant 0x7FF0000000000000
  // CHECK: step.constant 0xFFF0000000000000{{$}}
  %1 = step.constant 0xFFF0000000000000
  // The payload and the sign of a NaN are kept.
  // CHECK: step.constant 0x7FF8000000000001{{$}}
  %2 = step.constant 0x7FF8000000000001
  // CHECK: step.constant 0xFFF8000000000000{{$}}
  %3 = step.constant 0xFFF8000000000000
}
