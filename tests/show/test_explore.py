"""The explorer: what goes into its page, and the page itself in a browser."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import re

import chromium
import numpy as np
import pytest

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS
from blocklab.cli import main
from blocklab.numerics import get_format
from blocklab.show.explore import embedded_json, explorer_page
from blocklab.show.explore_data import explorer_data
from blocklab.show.explore_diagram import diagram
from blocklab.show.explore_fp8 import code_use
from blocklab.show.explore_math import mathml
from blocklab.show.explore_measures import describe, differences, histogram
from blocklab.show.explore_pack import Packer, Reduction, choose_reduction, fitting_limit, four_axes, reduce
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.trace import load_trace
from blocklab.store.trace_file import save_tensors
from goldens import FIXTURES

TEXT = "the cat sat on the mat"
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\u2028\u2029 ]]> <!-- & ' \" $x ${y}"
)

browser_only = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="needs Chromium to click through the page: apt-get install chromium"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explore")


@pytest.fixture(scope="module")
def saved(folder):
    """Two saved traces of the small preset, FP8 and float64."""
    paths = {}
    for recipe in ("deepseek-fp8", "float64"):
        paths[recipe] = folder / f"{recipe}.safetensors"
        steps = "*,*.in.*" if recipe == "deepseek-fp8" else "*"
        assert main(["run", "--text", TEXT, "--recipe", recipe, "--steps", steps, "--trace", str(paths[recipe])]) == 0
    return {recipe: load_trace(path) for recipe, path in paths.items()}


@pytest.fixture(scope="module")
def page(folder):
    """The page of `blocklab explore`, with its comparison."""
    path = folder / "page.html"
    assert main(["explore", "--text", TEXT, "-o", str(path)]) == 0
    return path


def read_page(path):
    """Return the document and the words of a page as its script reads them."""
    text = path.read_text(encoding="utf-8")
    document = json.loads(re.search(r'id="document">(.*?)</script>', text, re.DOTALL)[1])
    planes = np.frombuffer(
        gzip.decompress(base64.b64decode(re.search(r'id="arrays">(.*?)</script>', text)[1])), np.uint8
    )
    low, high = planes.reshape(2, -1).astype(np.uint16)
    return document, low | high << 8


def floats(words, place):
    part = words[place["at"] :][: int(np.prod(place["shape"]))].astype(np.uint32) << 16
    return part.view(np.float32).reshape(place["shape"])


# What goes into the page


def test_every_formula_becomes_mathml():
    for step in STEPS.values():
        assert mathml(step.formula)[0] in ("mi", "mrow", "msup", "msub", "msubsup")
    assert mathml(r"\hat c^{KV}") == [
        "msup",
        [["mover", [["mi", "c", {}], ["mo", "^", {"stretchy": "false"}]], {"accent": "true"}], ["mi", "KV", {}]],
        {},
    ]
    for wrong in (r"\unknown x", "{x", "x}", r"\mathrm x", "x^"):
        with pytest.raises(ValueError, match="formula"):
            mathml(wrong)


@pytest.mark.parametrize("attention", ["naive", "absorb"])
def test_the_diagram_has_each_step_once_and_flows_down(attention):
    layout = diagram(attention, None)
    there = [node["step"] for node in layout["nodes"]]
    assert there == [name for name, step in STEPS.items() if step.attention in ("both", attention)]
    places = {node["step"]: node for node in layout["nodes"]}
    assert all(places[edge["from"]]["row"] < places[edge["to"]]["row"] for edge in layout["edges"])
    for a in layout["nodes"]:
        for b in layout["nodes"]:
            if a["step"] < b["step"] and a["row"] == b["row"]:
                assert abs(a["column"] - b["column"]) >= (a["width"] + b["width"]) / 2


def test_the_diagram_without_a_query_latent():
    config = dataclasses.replace(BlockConfig.preset("kimi-k2"), q_lora_rank=None)
    layout = diagram("naive", config)
    assert "q_latent" not in [node["step"] for node in layout["nodes"]]
    assert {"from": "attn_norm", "to": "q", "column": None} in layout["edges"]


def test_pooling_keeps_the_strongest_with_its_sign():
    x = np.array([1.0, -3, 2, -np.inf, 0, -0.5, -np.inf, -np.inf, 5, np.nan, 4], np.float32).reshape(1, 1, 1, 11)
    np.testing.assert_array_equal(
        reduce(x, Reduction(1, 1, 2)).ravel(), np.array([-3, 2, -0.5, -np.inf, np.nan, 4], np.float32)
    )
    tall = np.arange(12.0).reshape(1, 1, 6, 2) * np.array([1, -1])
    np.testing.assert_array_equal(reduce(tall, Reduction(1, 3, 1))[0, 0], [[4, -5], [10, -11]])
    assert reduce(np.array([[[[1.0, np.inf]]]]), Reduction(1, 1, 2)).item() == np.inf


def test_reductions_fit_their_limit():
    assert choose_reduction((1, 1, 16, 640), 1 << 17, False).whole
    assert choose_reduction((1, 1, 128, 7168), 1 << 17, False) == Reduction(1, 1, 7)
    assert choose_reduction((1, 64, 128, 128), 1 << 17, True) == Reduction(1, 3, 3)
    for shape, square in (((3, 1, 4096, 18432), False), ((1, 128, 512, 512), True), ((500, 2, 9, 40), False)):
        how = choose_reduction(shape, 20_000, square)
        assert how.sequences * shape[1] * -(-shape[2] // how.rows) * -(-shape[3] // how.columns) <= 20_000
    limit = fitting_limit([((1, 1, 128, 7168), False)] * 20, 1_000_000)
    assert 25_000 < limit <= 50_000


def test_equal_arrays_are_packed_once_and_come_back():
    packer = Packer()
    first = packer.values(np.array([1.0, -2.5, np.nan, -np.inf]))
    assert packer.values(np.array([1.0, -2.5, np.nan, -np.inf])) == first
    second = packer.words(np.array([[7, 65535]], np.uint16))
    assert second == {"at": 4, "shape": [1, 2]}
    planes = np.frombuffer(gzip.decompress(base64.b64decode(packer.text())), np.uint8).reshape(2, -1).astype(np.uint16)
    words = planes[0] | planes[1] << 8
    np.testing.assert_array_equal(floats(words, first), np.array([1, -2.5, np.nan, -np.inf], np.float32))
    np.testing.assert_array_equal(words[4:], [7, 65535])


def test_masked_scores_are_those_of_any_program():
    lowest = np.finfo(np.float32).min
    for hidden in (-np.inf, lowest, -3.3895313892515355e38, -65504.0):
        scores = np.array([[1.5, hidden], [-700.0, 2.0]], np.float32)
        np.testing.assert_array_equal(masked_to_infinity("attn_masked", scores), [[1.5, -np.inf], [-700, 2]])
        assert masked_to_infinity("q", scores) is scores


def test_numbers_are_exact():
    x = np.zeros((1, 4, 100), np.float32)
    x[0, :, 7], x[0, 2, 7], x[0, 0, 0] = 3, -40, np.nan
    numbers = describe(x, 5.0, has_channels=True)
    assert (numbers["peak"], numbers["least"], numbers["most"], numbers["at"]) == (40, -40, 3, [0, 2, 7])
    assert (numbers["nan"], numbers["channels"][0]["index"]) == (1, (7,))
    counts = histogram(np.array([-3.0, -1, 0, 0.01, 1, 2]), 1.0)
    assert (counts["below"], counts["above"], counts["counts"][0], counts["counts"][30], counts["counts"][60]) == (
        *(1, 1, 1),
        *(2, 1),
    )
    a, b = np.array([[[2.0, -np.inf, 0, np.inf]]]), np.array([[[1.0, -np.inf, 0, 1]]])
    measures, difference = differences("attn_norm", a, b, "int64")
    np.testing.assert_array_equal(difference, [[[1, 0, 0, np.inf]]])
    assert (measures["relative"], measures["ratio"], measures["max_abs"], measures["equal"]) == (1, 2, None, 0.5)


def test_the_page_holds_the_values_of_the_trace(page, saved):
    document, words = read_page(page)
    trace, exact = saved["deepseek-fp8"], saved["float64"]
    steps = {step["name"]: step for step in document["steps"]}
    assert list(steps) == [step.name for step, _ in trace.steps()]
    for step, value in trace.steps():
        if step.name in ("pattern", "attn_masked"):
            continue
        picture = floats(words, steps[step.name]["picture"])
        np.testing.assert_array_equal(picture, four_axes(value, step.axes))  # bfloat16 run: nothing is lost
        error = value.astype(np.float64) - exact[step.name]
        expected = np.linalg.norm(error) / np.linalg.norm(exact[step.name])
        assert steps[step.name]["against"]["measures"]["relative"] == pytest.approx(expected, rel=1e-12)
    hidden = np.triu(np.ones((23, 23), bool), 1)
    assert (floats(words, steps["pattern"]["picture"])[0, :, hidden] == -np.inf).all()
    top = steps["pattern"]["top"]
    keys = words[top["key"]["at"] :][: 8 * 23].reshape(8, 23)
    np.testing.assert_array_equal(keys, trace["pattern"][0].argmax(-1))
    codes = np.bincount(trace["mlp_out.in.codes"].ravel(), minlength=256)
    assert document["fp8"]["mlp_out"]["codes"] == codes.tolist()
    assert document["fp8"]["mlp_out"]["recorded"]
    assert document["model"]["softmax_scale"] == BlockConfig.preset("kimi-k2-small").softmax_scale


def test_the_use_of_codes_is_that_of_their_format():
    codes = np.array([0, 0x80, 1, 7, 8, 0x7E, 0xFE, 0x7F], np.uint8)
    use = code_use(codes, get_format("e4m3fn"))
    assert (use["zero"], use["subnormal"], use["largest"], use["special"]) == (2 / 8, 2 / 8, 2 / 8, 1)
    assert [use["values"][code] for code in (1, 8, 0x38, 0x7E, 0x7F)] == [2**-9, 2**-6, 1, 448, None]
    use = code_use(np.array([0, 3, 4, 0x7B, 0x7C, 0x7D], np.uint8), get_format("e5m2"))
    assert (use["zero"], use["subnormal"], use["largest"], use["special"]) == (1 / 6, 1 / 6, 1 / 6, 2)
    assert use["values"][use["largest_code"]] == 57344


def test_the_curves_separate_what_fp8_adds(page):
    document, _ = read_page(page)
    arrives = {s["name"]: s["against"]["measures"]["relative"] for s in document["steps"]}
    alone, without = document["curves"]["alone"], document["curves"]["without FP8"]
    assert 0.01 < alone["q_latent"] == pytest.approx(arrives["q_latent"], rel=0.2)  # its input is almost exact
    assert alone["gate_act"] < 0.004 < 0.02 < arrives["gate_act"]
    assert without["mlp_out"] < arrives["mlp_out"] / 4


def test_the_page_is_small_and_sealed(page):
    text = page.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        inside = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r'(src|href)="(?!data:,|#)', text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", text)


def test_pages_of_one_trace_are_equal(saved):
    trace = saved["deepseek-fp8"]
    assert explorer_page(trace) == explorer_page(trace)


def test_embedded_json_cannot_end_its_element():
    text = embedded_json({HOSTILE: [HOSTILE, "\ud800"]})
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE, "\ud800"]}


def test_large_traces_are_reduced_and_say_so(saved):
    document, _ = explorer_data(saved["deepseek-fp8"], saved["float64"], {}, 2000)
    act = next(step for step in document["steps"] if step["name"] == "act")
    assert act["picture"]["every"] == [1, 18]
    assert act["against"]["picture"] is not None
    assert act["numbers"]["peak"] == float(np.abs(saved["deepseek-fp8"]["act"]).max())
    assert len(explorer_page(saved["deepseek-fp8"], cells=30_000)) < 400_000


def test_a_dump_of_another_program(folder):
    dump, checkpoint = FIXTURES / "dumps" / "deepseek-fp8.safetensors", FIXTURES / "checkpoints" / "kimi-fp8"
    made = folder / "dump.html"
    arguments = ["--trace", str(dump), "--checkpoint", str(checkpoint), "--reference", "deepseek-fp8"]
    assert main(["explore", *arguments, "-o", str(made)]) == 0
    document, _ = read_page(made)
    steps = {step["name"]: step for step in document["steps"]}
    assert {"q_rot", "kv_up", "mlp_out"} <= {name for name, step in steps.items() if "against" in step}
    assert "numbers" not in steps["attn_scores"]
    assert all(step["against"]["measures"]["relative"] < 0.01 for step in steps.values() if "against" in step)
    assert document["about"][0]["shown as q_rot"].startswith("attn.q_pe: ")
    assert steps["q_latent"]["weight"]["shape"] == [128, 256]


def test_the_command_refuses_what_does_not_go_together(page, folder, capsys):
    trace = str(folder / "deepseek-fp8.safetensors")
    for arguments, said in (
        (["--trace", trace, "--text", "a"], "--text is for a new run"),
        (["--trace", str(folder / "missing.safetensors")], "missing.safetensors"),
        (["--trace", str(FIXTURES / "dumps" / "kimi-fp8.safetensors")], "say of which block: --checkpoint DIR"),
        (["--trace", trace, "--reference", "float32"], "say which, by --checkpoint or --preset"),
        (["--against", trace, "--reference", "float32"], "expected one of them"),
        (["-o", str(folder)], "it is a folder"),
    ):
        assert main(["explore", *arguments]) == 2
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1


# The page in a browser


@pytest.fixture(scope="module")
def browser():
    with chromium.Chromium() as started:
        yield started


@pytest.fixture
def tab(browser):
    """The browser, which must have met no error and asked for nothing but files when the test ends."""
    browser.errors.clear()
    browser.requests.clear()
    yield browser
    browser.run("new Promise((resolve) => setTimeout(resolve, 50))")  # for errors that are still on their way
    assert browser.errors == []
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)


def visible(tab, selector):
    return tab.run(f"document.querySelector({json.dumps(selector)}).innerText")


def click_through(tab):
    """Click every step of the diagram and return what the panel says for each."""
    said = {}
    for name in tab.run("[...document.querySelectorAll('.node')].map((node) => node.id.slice(5))"):
        tab.click(f"#node-{name} rect")
        assert visible(tab, "h2") == name
        assert tab.run(f"document.getElementById('node-{name}').getAttribute('aria-selected')") == "true"
        assert tab.run("document.querySelector('.formula math').getBoundingClientRect().height") > 10
        said[name] = visible(tab, "#panel")
    return said


@browser_only
def test_a_newcomer_finds_the_answers(tab, page, saved):
    tab.open(page)
    said = click_through(tab)
    assert list(said) == [name for name, step in STEPS.items() if step.attention in ("both", "naive")]
    trace = saved["deepseek-fp8"]
    loudest = int(np.square(trace["attn_norm"], dtype=np.float64).mean((0, 1)).argmax())
    assert f"Loudest channel: channel {loudest}," in said["attn_norm"]
    assert "The scale γ is 0.1434 = 1/√(96 + 64), times 1.347²" in said["attn_scores"]
    assert re.search(r"Relative error against float64: \S+ %; the same recipe without FP8: 1.0 %", said["mlp_out"])
    assert "self_attn.q_a_proj.weight 384 × 640 = 245,760" in said["q_latent"]
    tab.run("location.hash = '#pattern&token=7&head=0'")
    tab.wait_for("document.querySelector('.gaze')")
    rows = tab.run(
        "[...document.querySelectorAll('.gaze tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )
    for head, row in enumerate(rows):
        key = int(trace["pattern"][0, head, 7].argmax())
        assert row[:2] == [str(head), f"{key} “{json.loads(trace.metadata['labels'])[key]}”"]
    assert rows[0][2] == "1 back"  # the head that looks at the token before


@browser_only
def test_every_kind_of_picture_shows_its_values(tab, page, saved):
    tab.open(page, "#pattern&token=7&head=1")
    colours = tab.run("palette()")
    pixels = """(() => {
      const canvas = document.querySelector('.pictures canvas'), n = 23;
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const wide = (canvas.width - MARGIN.left) / n, tall = (canvas.height - MARGIN.top - MARGIN.bottom) / n;
      return [[9, 9], [3, 2], [20, 22]].map(([row, column]) => {
        const x = Math.floor(MARGIN.left + (column + 0.25) * wide), y = Math.floor(MARGIN.top + (row + 0.25) * tall);
        return [...data.slice(4 * (y * canvas.width + x)).slice(0, 3)];
      });
    })()"""
    itself, elsewhere, hidden = tab.run(pixels)
    assert saved["deepseek-fp8"]["pattern"][0, 1, 9, 9] > 0.99
    assert itself == pytest.approx(colours["warm-2"], abs=3)
    assert elsewhere == pytest.approx(colours["zero"], abs=3)
    assert hidden == colours["hidden"]
    assert tab.run("[2.02, 2.002, -2.02].map((x) => colourOf(x, 2, palette()))") == [
        *(colours["warm-beyond"], colours["warm-2"], colours["cold-beyond"]),
    ]
    assert tab.run("colourOf(NaN, 2, palette())") == colours["nan"]
    assert tab.run("[...poolColumns({rows: 1, columns: 5, every: 1, values: [1, -4, 2, -Infinity, NaN]}, 3).values]")[
        :2
    ] == [-4, 2]


@browser_only
def test_numbers_as_people_read_them(tab, page):
    tab.open(page)
    shares = "[0, 1e-6, 0.0123, 0.5, 0.99996, 1, 1.39, 25]"
    texts = ["0 %", "< 0.01 %", "1.2 %", "50 %", "99.99 %", "100 %", "139 %", "2500 %"]
    assert tab.run(f"{shares}.map(percent)") == texts
    numbers = "[0, 1.23456, -0.00001234, 1234567, NaN, -Infinity, null].map((x) => number(x))"
    assert tab.run(numbers) == ["0", "1.235", "−1.234e−5", "1.235e6", "NaN", "−∞", "NaN"]
    assert tab.run("[7, 1008, 18874368].map((n) => compact(n))") == ["7", "1.0 k", "18.9 M"]
    assert tab.run("[2 ** -6, 0.5, 0.3, 4, 448].map(powerText)") == ["2⁻⁶", "2⁻¹", "0.3", "4", "448"]


@browser_only
def test_the_pointer_reads_values_and_chooses_tokens(tab, page, saved):
    tab.open(page, "#attn_norm&token=0")
    row, channel = 5, 426
    x, y = tab.run(
        f"""(() => {{
      const canvas = document.querySelector('.pictures canvas');
      canvas.scrollIntoView({{block: 'center'}});
      const box = canvas.getBoundingClientRect();
      return [box.left + MARGIN.left + ({channel} + 0.5) / 640 * (box.width - MARGIN.left),
              box.top + MARGIN.top + ({row} + 0.5) / 23 * (box.height - MARGIN.top - MARGIN.bottom)];
    }})()"""
    )
    tab.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    reading = visible(tab, ".pictures .reading")
    assert reading.startswith("token 5 c, ")
    read = float(reading.rpartition(": ")[2].replace("−", "-"))
    assert read == pytest.approx(saved["deepseek-fp8"]["attn_norm"][0, row, 426], abs=0.006)  # the loud channel
    for kind in ("mousePressed", "mouseReleased"):
        tab.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert tab.run("location.hash") == "#attn_norm&token=5&head=0"


@browser_only
def test_the_keyboard_reaches_everything(tab, page):
    tab.open(page)
    for key, hash_start in (
        ("ArrowDown", "#attn_norm&token=7"),
        ("End", "#resid_post"),
        ("ArrowUp", "#mlp_out"),
        ("ArrowLeft", "#mlp_out&token=6"),
        ("Home", "#resid_pre&token=6"),
    ):
        tab.press(key)
        assert tab.run("location.hash").startswith(hash_start)
    assert tab.run("document.activeElement.id") == "node-resid_pre"
    tab.press("]", "]")
    assert tab.run("location.hash").endswith("head=1")
    tab.run("location.hash = '#pattern&token=3&head=2'")
    tab.wait_for("document.getElementById('slider-token')")
    tab.run("document.getElementById('slider-token').focus()")
    tab.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert tab.run("[location.hash, document.activeElement.id]") == ["#pattern&token=4&head=2", "slider-token"]
    assert tab.run("document.getElementById('slider-token').getAttribute('aria-valuetext')") == "token 4 “␣”"


@browser_only
def test_everything_has_a_role_and_a_name(tab, page):
    tab.open(page, "#pattern")
    nameless = """[...document.querySelectorAll('canvas, svg.chart, button, input, [role]')]
      .filter((e) => !['failure', 'announce'].includes(e.id))
      .filter((e) => !(e.getAttribute('aria-label') || e.innerText || (e.labels && e.labels.length)))
      .map((e) => e.outerHTML.slice(0, 80))"""
    assert tab.run(nameless) == []
    assert tab.run("document.querySelectorAll('[tabindex=\"0\"]').length") == 1
    assert tab.run("document.documentElement.lang") == "en"


@browser_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_colours_and_widths(tab, page, scheme, width):
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    try:
        tab.open(page, "#mlp_out")
        ink, paper = tab.run(
            "['--ink', '--paper'].map((v) => getComputedStyle(document.documentElement).getPropertyValue(v))"
        )
        assert (ink < paper) == (scheme == "light")
        assert tab.run("document.documentElement.scrollWidth") <= width
        tab.run("window.dispatchEvent(new Event('beforeprint'))")
        assert tab.run("inkColour('--zero')") == "#f6f6f3"
        tab.run("window.dispatchEvent(new Event('afterprint'))")
    finally:
        tab.send("Emulation.setEmulatedMedia", features=[])
        tab.send("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)


@browser_only
def test_hostile_names_are_only_text(tab, folder, golden_trace):
    trace = golden_trace("deepseek-fp8")
    labels = json.dumps([HOSTILE] * 7)
    metadata = {**trace.metadata, HOSTILE: HOSTILE, "model": HOSTILE, "recipe": HOSTILE, "labels": labels}
    metadata |= {"config": '{"hidden_size": "</script>"}', "attention": HOSTILE, "positions": "[1e999]"}
    path = folder / "hostile.safetensors"
    save_tensors(path, {**trace.arrays, HOSTILE: np.ones(3, np.float32)}, "bfloat16", metadata)
    made = folder / "hostile.html"
    assert main(["explore", "--trace", str(path), "--against", str(path), "-o", str(made)]) == 0
    tab.open(made, "#%E0%A4%A&token=<img src=x>&__proto__=1&head=99")
    click_through(tab)
    assert tab.run("typeof window.hacked") == "undefined"
    assert tab.run("[document.images.length, document.scripts.length]") == [0, 3]
    told = tab.run("[document.getElementById('summary').textContent, document.getElementById('about').textContent]")
    assert all("</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>" in text for text in told)


@browser_only
def test_strange_arrays_under_the_names_of_steps(tab, folder):
    rng = np.random.default_rng(0)
    arrays = {
        "resid_pre": rng.standard_normal((2, 3, 5)).astype(np.float32),
        "attn_norm": np.array([[[np.nan, np.inf, -np.inf, 1, 0]]], np.float32),
        "q_latent": np.zeros((2, 0, 4), np.float32),
        "q": np.float32(3.5),
        "kv_down": np.arange(6, dtype=np.int64),
        "pattern": np.full((1, 1, 2, 2), np.nan, np.float32),
        "z": rng.standard_normal((2, 3, 4, 5, 6)),
        "attn_masked": np.full((1, 2, 3, 3), -np.inf, np.float32),
        "mlp_out": np.zeros((1, 3, 5), np.float32),
        "gate.in.codes": np.zeros((1, 3, 5), np.float32),
    }
    path, made = folder / "strange.safetensors", folder / "strange.html"
    save_tensors(path, arrays)
    assert main(["explore", "--trace", str(path), "-o", str(made)]) == 0
    tab.open(made)
    said = click_through(tab)
    assert "does not have the values" in said["up"]
    assert "empty in the trace" in said["q_latent"]
    tab.press("ArrowRight")


@browser_only
@pytest.mark.parametrize("cells", [2_000_000, 20_000])
def test_absorbed_attention_batches_and_reduction(tab, folder, golden_trace, cells):
    made = folder / f"absorb-{cells}.html"
    a, b = golden_trace("deepseek-bf16", "absorb"), golden_trace("float64", "absorb")
    made.write_text(explorer_page(a, b, cells=cells), encoding="utf-8")
    tab.open(made, "#z_latent&token=2&head=1&sequence=1")
    said = click_through(tab)
    assert "q_absorbed" in said
    assert "kv_up" not in said
    assert tab.run("document.getElementById('slider-sequence') !== null")
    assert ("one cell stands for several values" in visible(tab, "#about")) == (cells == 20_000)
