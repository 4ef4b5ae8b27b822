//===- Rows.h - numbers of one step after the other -------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_RUN_ROWS_H
#define STEPC_RUN_ROWS_H

#include "dialect/reference/Tensor.h"

#include <map>
#include <string>

namespace stepc::run {

/// Numbers by the name of an array, row after row.
using Rows = std::map<std::string, mlir::step::reference::Tensor>;

/// Adds a row of one number, or of one for each group.
void addRow(Rows &rows, const std::string &name, llvm::ArrayRef<double> numbers,
            bool perGroup);

} // namespace stepc::run

#endif // STEPC_RUN_ROWS_H
