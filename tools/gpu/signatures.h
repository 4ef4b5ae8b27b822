//===- signatures.h - functions of others, in terms of our types ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What check_driver.cpp and check_nccl.cpp compare declarations by.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_GPU_SIGNATURES_H
#define STEPC_TOOLS_GPU_SIGNATURES_H

#include <type_traits>

/// The type that stands for one of theirs: enumerations are `int` to us.
/// Specialized for structures that we declare ourselves.
template <typename T>
struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};

template <typename T>
struct Parameter {
  using Type = typename Plain<T>::Type;
};
template <typename T>
struct Parameter<T *> {
  using Type = typename Plain<T>::Type *;
};

template <typename F>
struct Signature;
template <typename R, typename... A>
struct Signature<R(A...)> {
  using Type = typename Parameter<R>::Type(typename Parameter<A>::Type...);
};

/// Whether a function of theirs has the type of ours.
template <typename Theirs, typename Ours>
inline constexpr bool kSameSignature =
    std::is_same_v<typename Signature<Theirs>::Type, Ours>;

#endif // STEPC_TOOLS_GPU_SIGNATURES_H
