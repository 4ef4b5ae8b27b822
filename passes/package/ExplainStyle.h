//===- ExplainStyle.h - colours of the picture, by day and by night -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINSTYLE_H
#define STEPC_PASSES_PACKAGE_EXPLAINSTYLE_H

namespace mlir::step {

inline constexpr char kStyle[] = R"(  <style>
    text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; fill: #17242b }
    .ground { fill: #ffffff }
    .name { font-weight: 600 }
    .small { font-size: 11px; fill: #4a5459 }
    .kernel { fill: #e3f0f5; stroke: #1f6f8b }
    .finish { fill: #fdf1e3; stroke: #b5651d }
    .round { fill: #efe7f7; stroke: #7a4fa3 }
    .lane { stroke: #b8c2c7 }
    .read { stroke: #1f6f8b; stroke-width: 1.5; fill: none }
    .write { stroke: #b3261e; stroke-width: 1.5; fill: none }
    .reads { fill: #1f6f8b }
    .writes { fill: #b3261e }
    .bound { stroke: #7a868c; stroke-dasharray: 5 4 }
    .least { fill: #7a868c }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf0 }
      .ground { fill: #12181b }
      .small { fill: #aab6bc }
      .kernel { fill: #17323d; stroke: #63b3cf }
      .finish { fill: #3a2a17; stroke: #e0a15c }
      .round { fill: #2e2340; stroke: #b794dd }
      .lane { stroke: #45525a }
      .read { stroke: #63b3cf }
      .write { stroke: #ff8a80 }
      .reads { fill: #63b3cf }
      .writes { fill: #ff8a80 }
      .bound { stroke: #8b989e }
      .least { fill: #8b989e }
    }
  </style>
)";

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINSTYLE_H
