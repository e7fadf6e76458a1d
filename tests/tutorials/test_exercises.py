"""Solutions are accepted; wrong attempts, written as a student would, are refused with the hint that fits."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checks import Exercise, Turn, check, find, judge

TUTORIALS = Path(__file__).parents[2] / "tutorials"
ATTEMPTS = Path(__file__).parent / "attempts"
EXERCISES = [
    find(number)
    for script in sorted(TUTORIALS.glob("[0-9]*.py"))
    for number in re.findall(r'^check\("([\d.]+)"', script.read_text(encoding="utf-8"), re.M)
]
FILES = [runpy.run_path(str(file)) for file in sorted(ATTEMPTS.glob("[0-9]*.py"))]
WRONG = [wrong for file in FILES for wrong in file["WRONG"]]
RIGHT = [right for file in FILES for right in file["RIGHT"]]


def solution(exercise):
    tutorial = int(exercise.number.partition(".")[0])
    (file,) = (TUTORIALS / "solutions").glob(f"{tutorial:02}_*.py")
    return runpy.run_path(str(file))[exercise.name]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.number)
def test_the_solution_is_accepted(exercise):
    verdict = judge(exercise, solution(exercise))
    assert (verdict.state, verdict.text) == ("solved", exercise.well_done)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.number)
def test_the_stub_has_the_name_that_the_exercise_has(exercise):
    tutorial = int(exercise.number.partition(".")[0])
    (script,) = TUTORIALS.glob(f"{tutorial:02}_*.py")
    name = exercise.name
    stub = rf'def {name}\([^)]*\):\n    raise NotImplementedError\n\n\ncheck\("{exercise.number}", {name}\)'
    assert re.search(stub, script.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("number", "attempt", "words"), WRONG, ids=[f"{n}-{a.__name__}" for n, a, _ in WRONG])
def test_a_wrong_attempt_gets_its_hint(number, attempt, words):
    verdict = judge(find(number), attempt)
    assert verdict.state == "refused"
    assert words in verdict.text


@pytest.mark.parametrize(("number", "attempt"), RIGHT, ids=[f"{n}-{a.__name__}" for n, a in RIGHT])
def test_another_right_way_is_accepted(number, attempt):
    assert judge(find(number), attempt).state == "solved"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.number)
def test_ten_different_wrong_attempts_are_refused(exercise):
    assert len({attempt.__name__ for number, attempt, _ in WRONG if number == exercise.number}) >= 10
    assert any(number == exercise.number for number, _ in RIGHT)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.number)
def test_every_hint_is_given_to_some_attempt(exercise):
    given = {judge(exercise, attempt).text for number, attempt, _ in WRONG if number == exercise.number}
    assert {f"Hint: {turn.hint}" for turn in exercise.turns} <= given


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.number)
def test_no_turn_is_right_and_none_hides_another(exercise):
    for turn in exercise.turns:
        assert judge(exercise, turn.computes).text == f"Hint: {turn.hint}"


TWICE = Exercise(
    "0.1",
    "double",
    right=lambda x: 2 * x,
    cases=[(np.arange(6.0).reshape(2, 3),), (np.array([np.inf, np.nan, -0.5]),)],
    turns=(Turn(lambda x: x**2, "this is the square."),),
    well_done="Good.",
    hint="Twice.",
    on_error="Use *.",
)


def in_place(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    ("attempt", "state", "words"),
    [
        (lambda x: x + x, "solved", "Good."),
        (lambda x: x * x, "refused", "this is the square."),
        (lambda x: 3 * x, "refused", "1 of 3 numbers differ:\n    x = [ inf,  nan, -0.5]"),
        (lambda x: 2 * x[..., None], "refused", "expected shape [3], found [3, 1]"),
        (lambda x: None, "refused", "returned nothing"),
        (lambda x: np.float32(2) * x + 1e-3, "refused", "[2]  -0.999     -1"),
        (lambda x: x > 1, "refused", "found bool [3]"),
        (lambda x: "x", "refused", "expected shape [3], found []"),
        (lambda x: (x, x), "refused", "expected shape [3], found [2, 3]"),
        (lambda x: [x, x[0]], "refused", "found (float64 [3], np.float64(inf))"),
        (lambda x: x @ x, "refused", "it raised ValueError"),
        (lambda x, y: x, "refused", "it raised TypeError"),
        (lambda x: x / 0, "refused", "[2]   -inf     -1"),
        (in_place, "refused", "changes its argument 1 in place"),
        (2.0, "refused", "pass the function itself"),
        (..., "unsolved", ""),
    ],
)
def test_attempts_of_all_kinds_get_an_answer(attempt, state, words):
    verdict = judge(TWICE, attempt)
    assert verdict.state == state
    assert words in verdict.text


def test_an_attempt_that_fails_hears_what_may_help():
    assert judge(TWICE, lambda x: x @ x).text.endswith("Arguments: float64 [2, 3]. Use *.")


def test_check_shows_the_smallest_case_that_fails(capsys):
    check("4.1", lambda x, angles: x)
    assert capsys.readouterr().out == (
        "Exercise 4.1, rotate_pairs: not right yet. Hint: the smallest case that fails, 2 of 2 numbers differ:\n"
        "    x = [[1., 0.]]\n"
        "    angles = [[1.5]]\n"
        "        at  yours          right\n"
        "    [0, 0]      1  0.07073720167\n"
        "    [0, 1]      0   0.9974949866\n"
    )
    check("1.1", lambda config: 0)
    said = capsys.readouterr().out
    assert "hidden_size=640" in said
    assert said.endswith("      yours      right\n          0  1,942,144\n")


def test_each_number_counts_by_itself_and_the_type_where_it_matters():
    small = replace(TWICE, cases=[(np.array([1e-9, 1e9]),), (np.float32([1.5]),)], same_type=True)
    assert judge(small, lambda x: 2 * x).state == "solved"
    assert judge(small, lambda x: 2 * x + (x < 1) * 1e-18).state == "refused"
    assert "are float64: return float32" in judge(small, lambda x: 2 * x.astype(float)).text
    assert judge(replace(small, same_type=False), lambda x: 2 * x.astype(float)).state == "solved"
    float32 = replace(TWICE, cases=[(np.float32([1e-30, 3.0]),)], tolerance=1e-12)
    assert judge(float32, lambda x: x * np.float32(2.00001)).state == "solved"
    assert judge(float32, lambda x: x * np.float32(2.0001)).state == "refused"
    assert judge(replace(float32, tolerance=0.0), lambda x: x * np.float32(2.00001)).state == "refused"


def test_a_number_that_does_not_exist_is_named():
    with pytest.raises(LookupError, match=r"'7\.9'"):
        check("7.9", len)
