//===- VariantRequest.h - what a variant is asked to be -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_VARIANTREQUEST_H
#define STEPC_PASSES_BIND_VARIANTREQUEST_H

#include "dialect/Step.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Error.h"

#include <map>
#include <string>

namespace mlir::step {

/// Storage types and option values as a user names them. Empty names mean the
/// default: param f32, grad as the param, states the compute type.
struct VariantRequest {
  std::string param, grad, state;
  /// How the f32 of a parameter stored as bf16 is kept: "f32", a state, or
  /// "remainder", the lower halves; empty: it is not.
  std::string master;
  /// How what is stored as bf16 is rounded: "stochastic"; empty: to nearest.
  std::string rounding;
  std::map<std::string, std::string> states; // by the state's name
  std::map<std::string, bool> options;       // by the option's name
  /// Mesh axes that shard a dim, by the dim's number from the end: -1 is the
  /// last; or, as kFlat, those over which a range of elements lies.
  std::map<int64_t, std::vector<std::string>> layout;
  static constexpr int64_t kFlat = 0;
  /// How the param and its gradient lie outside of the step: over these axes
  /// the param is whole where the layout cuts it, and over these the gradient
  /// is still to be summed, its addends crossing as `wire`, or as they are.
  std::vector<std::string> whole, partial;
  /// Over these axes one rank steps all of the tensor, whatever its rule.
  std::vector<std::string> owned;
  std::string wire;
  /// The rank of the tensors that it is for; 0: of any.
  int64_t rank = 0;

  /// Parses "param=bf16,grad=bf16,state=f32,state.exp_avg=bf16,
  /// option.amsgrad=true,layout.-1=tp,layout.whole=dp,layout.partial=dp,
  /// layout.owned=ep,layout.wire=bf16,rank=2,master=f32,rounding=stochastic",
  /// into what is there already. Items may be separated
  /// by semicolons too. Errors name the item.
  llvm::Error parse(StringRef text);

  /// Set one item each, as parse does. Errors name `item`, what was given.
  llvm::Error setStorage(std::string &storage, StringRef type, StringRef item);
  llvm::Error setState(StringRef name, StringRef type, StringRef item);
  llvm::Error setOption(StringRef name, StringRef value, StringRef item);
  /// `dim` is "flat" or a negative number, or what is said of the entry: whole,
  /// partial, owned; `axes` names joined by '+'. Or it is wire, and a storage
  /// type.
  llvm::Error setLayout(StringRef dim, StringRef axes, StringRef item);
  /// Refuses an entry that the layout does not go with.
  llvm::Error checkEntry(StringRef text) const;

  /// The text that parse reads, every item named here. The language has no
  /// names that would need quotes in it.
  std::string str() const;
};

/// Whether a tensor that the request is for can have the rule with this param.
bool isForRule(const VariantRequest &request, Type param);

/// The type of a storage name (f32, bf16, f16, f64), or null.
Type getStorageType(MLIRContext *context, StringRef name);

/// The layout of a rule's param in a request, or null where no dim of it is
/// sharded. Dims that a rule does not have are those of other rules.
LayoutAttr getLayout(const VariantRequest &request, Type param);

/// The entry of a rule's param with that layout, or with the one under which
/// one rank steps it, and the type that the rule has its gradient in; null
/// where tensors lie outside of the step as they do in it.
EntryAttr getEntry(const VariantRequest &request, LayoutAttr layout,
                   Type gradient, Type compute);

/// The type that the rule computes in: f64 where the parameter is f64, else
/// f32.
Type getComputeType(Type paramStorage);

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_VARIANTREQUEST_H
