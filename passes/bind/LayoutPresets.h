//===- LayoutPresets.h - layouts by the names that trainers give them -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_LAYOUTPRESETS_H
#define STEPC_PASSES_BIND_LAYOUTPRESETS_H

#include "passes/bind/VariantRequest.h"

#include <vector>

namespace mlir::step {

/// Appends to `requests` what `base` is with the layout that `text` names,
/// unless it is there: presets of the table and products of them ("fsdp2",
/// "tp(1)*fsdp2"), or dims as a request has them ("-2=dp,-1=tp",
/// "flat=dp,whole=dp,partial=dp"). A preset that counts dims from the first
/// gives a request for each rank. Errors name the text.
llvm::Error addLayout(StringRef text, const VariantRequest &base,
                      std::vector<VariantRequest> &requests);

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_LAYOUTPRESETS_H
