# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m stepc explain --html``: the page in headless Chromium, against the plan tool."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from stepc._units import size
from stepc.plan import machines, models, package, planning

ROOT = Path(__file__).resolve().parents[2]
MODEL = "emb 330x200 f32\nlayers.{}.w 160x80 f32 3\nlayers.{}.b 160 f32 3\nscale - f32\n"
LAYOUTS, RANKS = ("ddp", "zero1", "zero2", "fsdp2", "hsdp"), (8, 64)


def explain(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "stepc", "explain", *map(str, arguments)],
        env={"PYTHONPATH": str(ROOT / "frontend"), "PATH": "", "HOME": "/nonexistent"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        assert path, "chromium is not there: tools/setup/packages.txt"
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    model = folder / "small.txt"
    model.write_text(MODEL)
    path = folder / "page.html"
    explain(model, "--optimizer", "adafactor", "--html", path)
    return path


@pytest.fixture
def page(browser, written):
    """The page, which asks for nothing else and says nothing on its console."""
    asked, said = [], []
    made = browser.new_page()
    made.on("request", lambda request: asked.append(request.url))
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(written.as_uri())
    yield made
    assert not said and {url.split("#")[0] for url in asked} == {written.as_uri()}
    made.close()


def plan_of(written, layout, ranks):
    model = models.load(str(written.with_name("small.txt")))
    source = package.open_source("adafactor")
    return planning.make(source, model, machines.Machine(ranks), planning.Request(layout=layout))


def shown(page):
    """The one section that can be seen."""
    sections = [section for section in page.query_selector_all("section") if section.is_visible()]
    assert len(sections) == 1
    return sections[0]


def tiles(section):
    words = [tile.inner_text().split("\n") for tile in section.query_selector_all(".tiles div")]
    return {name: value for value, name in words}


def test_every_choice_shows_the_plan_tools_numbers(page, written):
    for layout in LAYOUTS:
        for ranks in RANKS:
            page.select_option("#layout", layout)
            page.select_option("#ranks", str(ranks))
            plan, found = plan_of(written, layout, ranks), tiles(shown(page))
            assert found["memory of a rank"] == size(plan.memory["total"]), (layout, ranks)
            account = plan.account
            crossing = f"{account.rounds} rounds, {size(account.exchanged)}"
            assert found["statistics cross in"] == crossing
            sent = sum(row.sent for row in plan.traffic)
            assert found["sent beside the step"] == size(sent)
            assert page.url.endswith(f"#{layout}/{ranks}")


def test_the_address_chooses(page, written):
    page.goto(f"{written.as_uri()}#fsdp2/64")
    section = shown(page)
    assert section.get_attribute("data-layout") == "fsdp2"
    assert section.get_attribute("data-ranks") == "64"
    page.goto(f"{written.as_uri()}#nothing/7")
    assert shown(page).get_attribute("data-layout") == "fsdp2"


def test_tensors_by_rule(page):
    rows = [row.inner_text().split("\t") for row in page.query_selector_all("h2 + table tr")]
    assert rows[1] == ["matrix", "[...b, n, m]",
                       "exp_avg_sq_row [...b, n, 1], exp_avg_sq_col [...b, 1, m]", "4",
                       f"{330 * 200 + 3 * 160 * 80:,}"]  # fmt: skip
    assert rows[2][0] == "any" and rows[2][3:] == ["4", "481"]
    page.click("text=4 tensors of rule any")
    assert "layers.2.b  160  f32\nscale  scalar  f32" in page.inner_text("details[open]")


def test_a_step_moves_codes(tmp_path):
    """Parameter, gradient and parameter, and both moments as they are kept, read and written."""
    model, path = tmp_path / "small.txt", tmp_path / "codes.html"
    model.write_text("emb 330x200 f32\nnorm 5000 f32\n")
    arguments = ("--optimizer", "adamw", "--layout", "ddp", "--ranks", 2, "--html", path)
    explain(model, *arguments, "--state", "q8")
    codes = 330 * 200 + 4 * 330 * 4
    moved = 12 * (330 * 200 + 5000) + 4 * (codes + 4 * 5000)
    assert f"<b>{size(moved)}</b>a step moves" in path.read_text()
    explain(model, *arguments)
    assert f"<b>{size(28 * 71000)}, least {size(28 * 71000)}</b>a step moves" in path.read_text()


def test_what_a_kernel_moves(page):
    page.select_option("#layout", "ddp")
    page.select_option("#ranks", "8")
    rows = shown(page).query_selector_all("table")[0].query_selector_all("tbody tr")
    cells = [row.inner_text().split("\t") for row in rows]
    elements = 330 * 200 + 3 * 160 * 80
    last = [row for row in cells if row[1] == "matrix"][-1]
    assert last[3:] == [f"param, grad: {size(8 * elements)}", f"param: {size(4 * elements)}"]


def test_bars_are_as_long_as_bytes_and_seconds(page):
    page.select_option("#layout", "zero2")
    section = shown(page)
    memory, *lines = section.query_selector_all("svg")
    amounts = [
        (float(bar.get_attribute("width")), bar.query_selector("title").inner_html())
        for bar in memory.query_selector_all("rect")
    ]
    ranks = {title.split(",")[0] for _, title in amounts}
    assert len(ranks) == 8
    of_rank = [width for width, title in amounts if title.startswith("rank 7,")]
    kinds = {re.search(", (.*):", title)[1] for _, title in amounts}
    assert {"parameters", "gradients", "states", "workspace"} <= kinds and len(of_rank) > 4
    whole, step = lines
    assert [event.inner_html() for event in whole.query_selector_all("title")][0].startswith(
        "gradients, all_to_all: "
    )
    titles = [title.inner_html() for title in step.query_selector_all("title")]
    assert [title.split(":")[0] for title in titles] == [
        "kernels of segment 0", "round 0, all_reduce", "kernels of segment 1",
        "round 1, all_reduce", "kernels of segment 2",
    ]  # fmt: skip
    places = [float(bar.get_attribute("x")) for bar in step.query_selector_all("rect")]
    assert places == sorted(places) and len(set(places)) == len(places)


def test_a_definition(browser, tmp_path):
    path = tmp_path / "definition.html"
    explain("adafactor", "--html", path, "--", "--option=has_beta1=false")
    made = browser.new_page()
    made.goto(path.as_uri())
    assert made.title() == "adafactor" and made.query_selector("svg").is_visible()
    words = made.inner_text("body")
    assert "in all: 3 kernels, 20 bytes per parameter; least possible 12" in words
    assert "step.optimizer @adafactor" in words
    made.close()


def test_what_cannot_be(tmp_path):
    model = tmp_path / "small.txt"
    model.write_text(MODEL)
    page = tmp_path / "page.html"
    arguments = (model, "--layout", "tp,fsdp2", "--html", page)
    explain(*arguments)
    said = "There is no such plan: model &#x27;small&#x27; has no rules for tp"
    assert page.read_text().count(said) == 2
    said = explain(model, "--layout", "tp", "--html", page, code=1)
    assert said == "stepc: error: none of tp is possible on 8, 64 ranks\n"
    said = explain("gpt3", code=1)
    assert said == "stepc: error: no optimizer 'gpt3' comes with this installation\n"
    said = explain("shapes.txt", code=1)
    assert said.startswith("stepc: error: model 'shapes.txt' cannot be read: ")
    said = explain("gpt2", "--", "--layout=tp(0)", code=1)
    assert said == "stepc: error: '--layout=tp(0)' is the compiler's, of a definition\n"


def test_in_words(tmp_path):
    model = tmp_path / "small.txt"
    model.write_text(MODEL)
    words = explain(model, "--optimizer", "adamw", "--ranks", "4")
    assert words.startswith("adamw on small: 8 tensors, 104,881 elements; ddp on 4 ranks")
    row = "| any | [*] | exp_avg [*], exp_avg_sq [*] | 8 | 104,881 |"
    assert row in words
    assert all(f"| adamw | {layout} | 4 |" in words for layout in LAYOUTS)
