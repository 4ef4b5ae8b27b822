"""Writes one member of a package to a file: extract.py PACKAGE MEMBER OUT."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import sys
import zipfile

package, member, out = sys.argv[1:]
with zipfile.ZipFile(package) as archive, open(out, "wb") as file:
    file.write(archive.read(member))
