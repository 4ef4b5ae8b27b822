# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the schedule of a variant, a line for each entry: what it is, its segment, and the
entries that it waits for. ``list_schedule.py MANIFEST VARIANT``"""

import json
import sys
from pathlib import Path

manifest = json.loads(Path(sys.argv[1]).read_text())
(variant,) = [one for one in manifest["variants"] if one["name"] == sys.argv[2]]
for number, entry in enumerate(variant["schedule"]):
    kind = next(key for key in ("finish", "exchange", "kernel") if key in entry)
    words = [f"{number}: {kind} {entry[kind]}", f"segment {entry['segment']}"]
    if "slot" in entry:
        words.append(
            f"slot {entry['slot']} to {manifest['statistics'][entry['statistic']]['name']}"
        )
    words += [f"after {edge['entry']} ({edge['scope']})" for edge in entry["after"]]
    print(", ".join(words))
