/*===- Image.h - what a kernel's image and the double agree on -------------===
 *
 * Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * An image is a shared object that stepc-cuda-host makes of a device's module.
 * For each kernel it exports
 *
 *   void NAME(const int64_t *arguments);
 *   const int64_t NAME_words;            how many arguments there are
 *
 * and one array of pointers, which the double fills when it loads the image:
 *
 *   void *stepc_cuda_services[SERVICES];
 */
#ifndef STEPC_TEST_CUDA_DOUBLE_IMAGE_H
#define STEPC_TEST_CUDA_DOUBLE_IMAGE_H

#define STEPC_SERVICES "stepc_cuda_services"

enum {
  SERVICE_THREAD,  /* int32_t (void): the number of the thread, x */
  SERVICE_BLOCK,   /* int32_t (void): the number of the block, x */
  SERVICE_GRID,    /* int32_t (void): blocks of the grid, x */
  SERVICE_ACCESS,  /* void (int64_t address, int64_t bytes,
                            int64_t alignment): before each access */
  SERVICE_BARRIER, /* void (void): of the block */
  SERVICE_SHUFFLE, /* int32_t (int32_t value, int32_t offset,
                               int32_t maskAndClamp, int32_t kind): the value
                      of another lane; shfl.sync of all lanes */
  SERVICES
};

/* Kinds of shuffles. */
enum { SHUFFLE_BFLY, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_IDX };

#endif /* STEPC_TEST_CUDA_DOUBLE_IMAGE_H */
