# Prints "PASSED FAILED" for one part of the check.
#
#   counts.py STATUS REPORT
#
# STATUS is the exit status of the part, REPORT its JUnit file, or "-" for a part
# that counts as one. A test that is itself a run of lit or of GoogleTest counts
# as what it ran. A part that failed has at least one failure, whatever its report
# says.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import sys
import xml.etree.ElementTree as ElementTree

ANSI = re.compile(r"\x1b\[[0-9;]*m")
LIT_BAD = ("Failed", "Unresolved", "Timed Out", "Unexpectedly Passed")


def lit_counts(text):
    """What lit's summary says, or None."""
    found = dict(re.findall(r"^\s+([A-Z][A-Za-z ]+?)\s*:\s+(\d+)(?: \(.*\))?$", text, re.M))
    if not found or "Testing Time" not in text and "Total Discovered Tests" not in text:
        return None
    good = int(found.get("Passed", 0)) + int(found.get("Expectedly Failed", 0))
    return good, sum(int(found.get(name, 0)) for name in LIT_BAD)


def gtest_counts(text):
    """What GoogleTest's summary says, or None."""
    good = re.findall(r"^\[  PASSED  \] (\d+) tests?", text, re.M)
    bad = re.findall(r"^\[  FAILED  \] (\d+) tests?, listed below", text, re.M)
    if not good and not bad:
        return None
    return sum(map(int, good)), sum(map(int, bad))


def case_counts(case):
    """(passed, failed) of one <testcase>."""
    if case.find("skipped") is not None:
        return 0, 0
    bad = case.find("failure") is not None or case.find("error") is not None
    text = ANSI.sub("", case.findtext("system-out") or "")
    inner = lit_counts(text) or gtest_counts(text)
    if inner is None or sum(inner) == 0:
        return (0, 1) if bad else (1, 0)
    return inner[0], max(inner[1], int(bad))


def report_counts(path):
    good = bad = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        case_good, case_bad = case_counts(case)
        good, bad = good + case_good, bad + case_bad
    return good, bad


def main():
    status, report = int(sys.argv[1]), sys.argv[2]
    good, bad = (int(status == 0), 0)
    if report != "-":
        try:
            good, bad = report_counts(report)
        except (OSError, ElementTree.ParseError):
            good, bad = 0, 1
    if status != 0:
        bad = max(bad, 1)
    print(good, bad)


if __name__ == "__main__":
    main()
