//===- direct.h - torch's own functions, called by address ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading a tensor through Python objects costs three times what torch's own
// functions cost, and makes an object for each gradient. torch/tensors/walk.py
// looks these functions up in the loaded libraries, by names that tell the
// types of their arguments, and tries each on a probe before it hands them
// over. With none of them (all members zero) everything goes through the
// exchange table.
//
// A "slot" is the address of an at::Tensor: one pointer to an implementation.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_EXT_DIRECT_H
#define STEPC_EXT_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcDirect {
  /* at::toDLPackNonOwning(const at::Tensor &, DLTensor *[, bool readOnly]) */
  void (*view)(const void *slot, DLTensor *out, bool readOnly);
  /* const at::Tensor &c10::TensorImpl::grad() const */
  const void *(*grad)(const void *impl);
  /* torch::autograd::impl::bump_version(const at::Tensor &) */
  void (*bump)(const void *slot);
  /* aoti_torch_new_tensor_handle(const at::Tensor *, at::Tensor **), one owner
   * more, and aoti_torch_delete_tensor_object(at::Tensor *); or both NULL. */
  int32_t (*own)(const void *slot, void **handle);
  int32_t (*disown)(void *handle);
  /* The implementation of a tensor that is not defined. */
  const void *undefined;
  /* Of the slot in a tensor's Python object. */
  ptrdiff_t slotOffset;
  /* Of the storage and the offset into it in an implementation, and of the
   * memory's address in a storage. All zero: they could not be found. */
  ptrdiff_t storageOffset, elementOffset, memoryOffset;
  /* Of the set of dispatch keys in an implementation, and that set where the
   * tensor is dense, in the processor's memory, and of no subclass with its own
   * dispatch: reading it runs nothing of Python. Both zero: not found. */
  ptrdiff_t keysOffset;
  uint64_t plainKeys;
} StepcDirect;

/* Describes the tensor and its gradient, whose slot is `gradSlot`. Returns 1,
 * or 0 where it has no gradient, or -1 where one of them cannot be described
 * (sparse, say). */
int stepcDirectRead(const StepcDirect *direct, const void *slot,
                    const void *gradSlot, DLTensor *param, DLTensor *grad);

/* Bumps the version counter; -1 where the tensor has none. */
int stepcDirectBump(const StepcDirect *direct, const void *slot);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_EXT_DIRECT_H */
