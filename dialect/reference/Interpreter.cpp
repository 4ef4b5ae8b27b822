//===- Interpreter.cpp - the meaning of a definition -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Interpreter.h"

#include "dialect/reference/ModelStep.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

/// The request with every format f64, in f64 mode.
static ModelRequest applyMode(ModelRequest request) {
  if (request.mode != Mode::F64)
    return request;
  for (TensorRequest &tensor : request.tensors) {
    tensor.compute = Format::F64;
    tensor.param.storage = tensor.grad.storage = Format::F64;
    for (auto &[name, state] : tensor.states)
      state.storage = Format::F64;
  }
  return request;
}

Expected<ModelOutcome>
mlir::step::reference::interpretStep(OptimizerOp optimizer,
                                     const ModelRequest &request) {
  if (!hostIsInDefaultMode())
    return makeError("the host's floating-point mode is not the default one: "
                     "to nearest, with denormals");
  return ModelStep(optimizer, applyMode(request)).run();
}

static TensorRequest getTensor(const Request &request) {
  return {0,
          true,
          request.compute,
          Master::None,
          std::nullopt,
          request.rule,
          request.count,
          request.fresh,
          {},
          request.param,
          request.grad,
          request.states};
}

Expected<Outcome> mlir::step::reference::interpret(OptimizerOp optimizer,
                                                   const Request &request) {
  ModelRequest model;
  model.mode = request.mode;
  model.groups.push_back({request.hypers, request.options, {}, {}});
  model.tensors.push_back(getTensor(request));
  Expected<ModelOutcome> outcome = interpretStep(optimizer, model);
  if (!outcome)
    return outcome.takeError();
  return std::move(outcome->tensors.front());
}

/// What `get` says of the tensor, once it is bound, alone.
template <typename ResultT>
static Expected<ResultT>
askTensor(OptimizerOp optimizer, const GroupRequest &group,
          const TensorRequest &request,
          llvm::function_ref<ResultT(TensorStep &)> get) {
  Source source(optimizer);
  Frame model, frame;
  frame.outer = &model;
  if (Error error = bindModel(source, {}, model))
    return error;
  if (Error error = bindGroup(source, group, frame))
    return error;
  TensorStep tensor(source, request, /*number=*/1, frame);
  if (Error error = tensor.bind())
    return error;
  return get(tensor);
}

Expected<std::string>
mlir::step::reference::findRule(OptimizerOp optimizer,
                                const GroupRequest &group,
                                const TensorRequest &request) {
  return askTensor<std::string>(
      optimizer, group, request,
      [](TensorStep &tensor) { return tensor.getRuleName().str(); });
}

Expected<SmallVector<InitialState>>
mlir::step::reference::makeInitialStates(OptimizerOp optimizer,
                                         const GroupRequest &group,
                                         const TensorRequest &request) {
  return askTensor<SmallVector<InitialState>>(
      optimizer, group, request,
      [](TensorStep &tensor) { return tensor.makeInitialStates(); });
}

Expected<SmallVector<InitialState>>
mlir::step::reference::makeInitialStates(OptimizerOp optimizer,
                                         const Request &request) {
  return makeInitialStates(optimizer, {request.hypers, request.options, {}, {}},
                           getTensor(request));
}
