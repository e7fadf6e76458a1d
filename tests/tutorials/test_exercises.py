"""Solutions are accepted; wrong attempts, written as a student would, are refused with the hint that fits."""

import re
import runpy
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
WRONG = [
    (number, attempt, words)
    for file in sorted(ATTEMPTS.glob("[0-9]*.py"))
    for number, attempt, words in runpy.run_path(str(file))["WRONG"]
]


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
        (lambda x: 3 * x, "refused", "expected 2 at [0, 1], found 3. Arguments: float64 [2, 3]."),
        (lambda x: 2 * x[..., None], "refused", "expected shape [2, 3], found [2, 3, 1]"),
        (lambda x: None, "refused", "returned nothing"),
        (lambda x: np.float32(2) * x + 1e-3, "refused", "expected 0 at [0, 0], found 0.001"),
        (lambda x: x > 1, "refused", "found bool [2, 3]"),
        (lambda x: "x", "refused", "expected shape [2, 3], found []"),
        (lambda x: (x, x), "refused", "expected shape [2, 3], found [2, 2, 3]"),
        (lambda x: [x, x[0]], "refused", "found (float64 [2, 3], float64 [3])"),
        (lambda x: x @ x, "refused", "it raised ValueError"),
        (lambda x, y: x, "refused", "it raised TypeError"),
        (lambda x: x / 0, "refused", "expected 0 at [0, 0], found nan"),
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


def test_check_prints_one_line(capsys):
    check("1.1", lambda config: 0)
    said = capsys.readouterr().out
    assert said.startswith("Exercise 1.1, count_attention: not right yet. Hint: expected 1,942,144, found 0.")
    assert said.count("\n") == 1


def test_a_number_that_does_not_exist_is_named():
    with pytest.raises(LookupError, match=r"'7\.9'"):
        check("7.9", len)
