"""The check proves itself: each mistake, injected into a run, must be named first at the step where it shows."""

import pytest
from validation_runs import DEEPSEEK, SETTINGS, TRANSFORMERS, dump_of, make_run

from blocklab.check.mistakes import MISTAKES, catalogue, catalogue_table, inject
from blocklab.check.validation import validate
from blocklab.errors import InputError

VISIBLE = {"all": None, "transformers": TRANSFORMERS, "deepseek": DEEPSEEK}

# A constant shift of all positions changes q_rot and k_rot and nothing after them.
INVISIBLE = {("positions-from-zero", "transformers")}

FIRST = {
    "attn_norm": ("wrong-eps", "norm-rounds-once", "norm-rounds-twice"),
    "q_latent": (
        *("scale-missing", "scale-divided", "scale-transposed", "scale-last-row-lost", "fp8-read-as-fnuz"),
        *("fp8-overflow-nan", "amax-floor", "activation-per-token", "activation-per-tensor", "weights-transposed"),
    ),
    "q_latent_norm": ("missing-q-norm",),
    "q_nope": ("q-rope-first",),
    "q_rot": (
        *("rope-half-split", "rope-permuted-twice", "mscale-in-rotary", "missing-yarn", "wrong-beta-fast"),
        *("wrong-theta", "rotary-table-bf16", "positions-from-zero"),
    ),
    "kv_latent_norm": ("missing-kv-norm",),
    "k_nope": ("kv-b-value-first", "kv-b-all-keys-first"),
    "attn_scores": ("missing-mscale", "mscale-once", "scale-from-nope-width", "scale-from-latent-width"),
    "attn_masked": ("missing-mask", "mask-off-by-one", "mask-added-as-bool", "mask-upper-left"),
    "pattern": ("softmax-in-low-precision",),
    "resid_mid": ("residual-from-norm",),
    "gate": ("gate-up-swapped",),
    "gate_act": ("gelu-for-silu",),
}
WHERE = {mistake: step for step, mistakes in FIRST.items() for mistake in mistakes}
IDS = tuple(WHERE)
"""Every id of the contract, and the first step that shows its usual form."""


def cases():
    """Every mistake in every setting where it can be made; every fifth in the quick suite, all settings in turn."""
    number = 0
    for mistake in IDS:
        for setting in SETTINGS:
            for visible in VISIBLE:
                if (mistake, visible) in INVISIBLE or not possible(mistake, setting):
                    continue
                number += 1
                marks = [] if number % 5 == 0 else [pytest.mark.slow]
                yield pytest.param(mistake, setting, visible, marks=marks, id=f"{mistake}-{setting}-{visible}")


def possible(mistake, setting):
    recipe = SETTINGS[setting].recipe
    if mistake in ("fp8-overflow-nan", "amax-floor", "activation-per-token", "activation-per-tensor"):
        return recipe == "deepseek-fp8"
    if mistake.startswith(("scale-missing", "scale-divided", "scale-transposed", "scale-last", "fp8-read")):
        return SETTINGS[setting].dtype == "fp8"
    if mistake == "norm-rounds-once":
        return recipe == "bfloat16"
    if mistake == "norm-rounds-twice":
        return recipe.startswith("deepseek")
    return True


@pytest.mark.parametrize(("mistake", "setting", "visible"), list(cases()))
def test_the_injected_mistake_is_named_first(mistake, setting, visible):
    run = make_run(setting, cached=6 if mistake == "mask-upper-left" else 0)
    report = validate(dump_of(inject(run, mistake), run, VISIBLE[visible]), run.weights, run.recipe, run.attention)
    assert report.verdict == "diverged"
    assert report.exit_status == 1
    found = report.diagnosis[0]
    assert (found.mistake, found.explains) == (mistake, True), report.sentence
    assert found.residual < 0.1 * found.before
    if visible == "all" and run.attention == "naive":
        assert report.first_divergence == WHERE[mistake]


@pytest.mark.parametrize("visible", VISIBLE)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("cached", [0, 6])
def test_a_run_without_mistake_passes(setting, visible, cached):
    run = make_run(setting, cached)
    report = validate(dump_of(run, run, VISIBLE[visible]), run.weights, run.recipe, run.attention)
    assert report.verdict == "pass"
    assert report.exit_status == 0
    # BLAS adds float32 in another order for the doubled batch; everything else must be equal to the bit.
    exact = run.recipe.accumulate == "exact"
    assert all(r.local.within <= (0 if exact else 0.6) and r.local.rounding <= 0.5 for r in report.steps)
    assert report.not_compared == ()


def test_the_catalogue_has_every_id_of_the_contract():
    assert set(MISTAKES) == set(IDS)
    assert len(IDS) == 38
    assert [entry["mistake"] for entry in catalogue()] == list(MISTAKES)
    for mistake in MISTAKES.values():
        assert mistake.id in catalogue_table()
        assert mistake.what in catalogue_table()


def test_a_mistake_that_cannot_be_made_or_does_not_exist_is_refused():
    run = make_run("float32")
    with pytest.raises(InputError, match="amax-floor: this run cannot have it"):
        inject(run, "amax-floor")
    with pytest.raises(InputError, match="no mistake 'typo'; there are rope-half-split"):
        inject(run, "typo")


@pytest.mark.parametrize("mistake", IDS)
def test_every_form_of_every_mistake_runs_and_changes_a_step_it_names(mistake):
    setting = "deepseek-fp8" if possible(mistake, "deepseek-fp8") else "bfloat16"
    run = make_run(setting, cached=6 if mistake == "mask-upper-left" else 0)
    right = run.record()
    forms = list(MISTAKES[mistake].vary(run))
    assert forms
    for variation in forms:
        wrong = variation.case.record()
        changed = [step for step in right if not (right[step] == wrong[step]).all()]
        assert changed, variation.detail
        assert changed[0] in (variation.acts or MISTAKES[mistake].acts), variation.detail
