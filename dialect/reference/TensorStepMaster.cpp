//===- TensorStepMaster.cpp - the f32 behind a parameter ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/TensorStep.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Expected;

/// The param as the rule sees it: the f32 behind it, where there is one.
Expected<StoredTensor> TensorStep::readMaster() {
  if (request.master == Master::None)
    return request.param;
  Format storage = request.param.storage;
  if (storage != Format::BF16 &&
      (storage != Format::F16 || request.master == Master::Remainder))
    return makeError("a master is asked for of 'param', which is stored as " +
                     getName(storage) +
                     "; only bf16 has masters, and f16 those that are states");
  StringRef name = getStateName(request.master);
  auto given = request.states.find(name.str());
  if (given == request.states.end())
    return makeError("state '" + name + "' is not given");
  Format wanted = getStateFormat(request.master);
  if (given->second.storage != wanted)
    return makeError("state '" + name + "' is stored as " +
                     getName(given->second.storage) + ", expected " +
                     getName(wanted));
  const Tensor &param = request.param.tensor, &state = given->second.tensor;
  if (state.shape != param.shape)
    return makeError("'" + name + "' has shape " + toString(state.shape) +
                     ", expected " + toString(param.shape));
  return StoredTensor{
      getMaster(request.master, storage, param, state, isFresh(name)),
      Format::F32};
}

/// Rounds the param, and leaves the f32 behind it in its state.
void TensorStep::writeMaster(Outcome &outcome) {
  if (request.master == Master::None)
    return;
  Tensor &kept = outcome.states[getStateName(request.master).str()];
  kept = outcome.param;
  for (double &element : outcome.param.elements)
    element = roundToParam(request.param.storage, element);
  if (request.master == Master::Remainder)
    for (double &element : kept.elements)
      element = getLowerHalf(element);
}
