//===- Description.h - what tensors would get ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Answers which rule and variant a tensor gets, with which states and memory,
// by the functions that bind tensors.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_DESCRIPTION_H
#define STEPC_CORE_DESCRIPTION_H

#include "core/TensorQuery.h"

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace stepc {

/// Names as C has them.
using Texts = std::vector<const char *>;

/// A definition's interface or a package's manifest, with what can be said of
/// its rules once. Immutable.
class Interface {
public:
  explicit Interface(std::string_view text);

  const Manifest &getManifest() const { return manifest; }
  const StepcRuleDescription &getRule(size_t rule) const {
    return rules[rule].description;
  }
  /// The dims of a state of a rule, and of an operand of a variant.
  const Texts &getStateDims(size_t rule, size_t state) const {
    return rules[rule].states[state];
  }
  const Texts &getOperandDims(size_t variant, size_t operand) const {
    return operands[variant][operand];
  }

private:
  struct Named {
    Texts dims;
    Texts unshardable;
    std::vector<Texts> states;
    StepcRuleDescription description = {};
  };

  Manifest manifest;
  std::vector<Named> rules;
  std::vector<std::vector<Texts>> operands;
};

/// What tensors get, in the structures of the C interface, and the memory that
/// these point to. It keeps the interface.
class Description {
public:
  explicit Description(std::shared_ptr<const Interface> interface)
      : interface(std::move(interface)) {}

  /// Adds the answer to one query.
  void add(const TensorQuery &query);
  /// Of all that were added.
  const StepcTensorDescription *const *getTensors() const {
    return pointers.data();
  }

private:
  struct State {
    std::vector<int64_t> shape;
    std::vector<int64_t> part;
    std::vector<int32_t> paramDims;
    std::vector<int64_t> codeShape;
    std::vector<int64_t> codePart;
    std::vector<int64_t> scaleShape;
    std::vector<int64_t> scalePart;
    StepcStateDescription description = {};
  };
  struct Tensor {
    std::deque<State> states;
    std::vector<const StepcStateDescription *> pointers;
    std::vector<int64_t> bufferEntries;
    std::string refusal;
    StepcTensorDescription description = {};
  };

  void addCost(const TensorQuery &query, Tensor &tensor) const;
  void addRule(const TensorQuery &query, Tensor &tensor);
  void addDeclared(const TensorQuery &query, size_t index,
                   Tensor &tensor) const;
  void addVariant(const TensorQuery &query, size_t index, Tensor &tensor) const;
  void setCodes(const TensorQuery &query, const std::string &name,
                const Dims &dims, State &state) const;
  void addWork(const TensorQuery &query, const Variant &variant,
               Tensor &tensor) const;
  State &addState(const TensorQuery &query, const std::string &name,
                  const Dims &dims, const Texts &texts, Tensor &tensor) const;
  void setShapes(const TensorQuery &query, const Dims &dims,
                 State &state) const;

  std::shared_ptr<const Interface> interface;
  std::deque<Tensor> tensors;
  std::vector<const StepcTensorDescription *> pointers;
  // Of the tensor that is being added.
  const Rule *rule = nullptr;
  std::vector<int64_t> boundExtents;
};

} // namespace stepc

#endif // STEPC_CORE_DESCRIPTION_H
