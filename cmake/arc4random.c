/* Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * LLVM draws names of temporary files by arc4random, which glibc has from 2.36
 * on. It is all that the tools need of a glibc younger than 2.34, so it stands
 * here.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

uint32_t arc4random(void);

uint32_t arc4random(void) {
  uint32_t number;
  if (getentropy(&number, sizeof number) != 0)
    abort();
  return number;
}
