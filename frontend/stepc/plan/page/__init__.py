# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One page of HTML that shows plans, without resources from elsewhere.

``sections``: what is said of one plan. ``charts``: its pictures. ``page.html``: style, and the
script that shows the section of the layout and the number of ranks that are chosen.
"""

from .sections import of_definition, of_model

__all__ = ["of_definition", "of_model"]
