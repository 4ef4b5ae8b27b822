#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes the picture of docs/commands.md: the page of Adafactor on GPT-2, in headless Chromium."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "explain.png"


def main():
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "page.html"
        env = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}
        command = ["explain", "gpt2", "--optimizer", "adafactor", "--html", str(page)]
        subprocess.run([sys.executable, "-m", "stepc", *command], env=env, check=True)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        shown = browser.new_page(viewport={"width": 960, "height": 800})
        shown.goto(f"{page.as_uri()}#fsdp2/8")
        shown.screenshot(path=PICTURE, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
