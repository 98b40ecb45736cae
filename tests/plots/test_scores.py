"""Displays of scores: the tests read back what was drawn from the artists."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from metric_factories import gaussian_scores
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import det_curve
from sklearn.pipeline import make_pipeline

from pcsda import CSDA, PCSDA, PCSDACV, KernelPCSDA, NystroemMap
from pcsda.datasets import make_class_specific
from pcsda.metrics import (
    bayes_error_curve,
    bayes_threshold,
    cllr,
    detection_cost,
    equal_error_rate,
    min_cllr,
    min_detection_cost,
)
from pcsda.plots import (
    BayesErrorDisplay,
    DetDisplay,
    ReliabilityDisplay,
    ScoreDisplay,
    SpectrumDisplay,
)

matplotlib.use("Agg")
OF_SCORES = [ScoreDisplay, DetDisplay, ReliabilityDisplay, BayesErrorDisplay]
EVERY = pytest.mark.parametrize("display", OF_SCORES, ids=lambda d: d.__name__)


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def toy():
    return make_class_specific(300, n_features=4, n_informative=3, n_subclasses=3, random_state=0)


@pytest.fixture(scope="module")
def model(toy):
    return PCSDA(3, random_state=0).fit(toy.data, toy.target)


def legend_texts(display):
    return [text.get_text() for text in display.legend_.get_texts()]


def test_histograms_hold_every_score_of_their_class(ax):
    y, scores = gaussian_scores(2.0, 500)
    display = ScoreDisplay.from_predictions(y, scores, threshold=1.3, score_name="points", ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    for bars, label in zip(display.bars_, (1, 0), strict=True):
        heights, edges, _ = bars.get_data()
        clipped = np.clip(scores[y == label], edges[0], edges[-1])
        assert_allclose(heights, np.histogram(clipped, edges, density=True)[0])
        assert_allclose(np.sum(heights * np.diff(edges)), 1)
    assert display.line_.get_xdata()[0] == 1.3
    missed, accepted = np.mean(scores[y == 1] < 1.3), np.mean(scores[y == 0] >= 1.3)
    assert legend_texts(display) == [
        f"class of interest (n = 500), {missed:.2%} missed",
        f"rest (n = 500), {accepted:.2%} accepted",
        "threshold at 1.3",
    ]
    assert ax.get_xlabel() == "points"
    assert ax.get_ylabel() == "density within class"
    colors = {to_hex(bars.get_edgecolor()) for bars in display.bars_}
    assert len(colors) == 2


def test_the_threshold_is_that_of_equal_errors_unless_given(ax):
    y, scores = gaussian_scores(2.0, 100)
    display = ScoreDisplay.from_predictions(np.where(y, "a", "b"), scores, pos_label="a", ax=ax)
    assert display.threshold == equal_error_rate(y, scores)[1]
    assert legend_texts(display)[2].startswith("equal error rate at ")


@pytest.mark.parametrize("priors", ["empirical", (0.2, 0.8)])
@pytest.mark.parametrize("pos_label", [0, 1])
def test_an_estimator_draws_its_own_decision(toy, ax, priors, pos_label):
    model = PCSDA(3, priors=priors, pos_label=pos_label, random_state=0).fit(toy.data, toy.target)
    display = ScoreDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    positive = toy.target == pos_label
    assert_array_equal(display.positive, model.log_likelihood_ratio(toy.data)[positive])
    accepted = model.predict(toy.data) == pos_label
    assert_array_equal(display.positive >= display.threshold, accepted[positive])
    assert_array_equal(display.negative >= display.threshold, accepted[~positive])
    assert ax.get_xlabel() == "log-likelihood ratio"
    assert legend_texts(display)[2].startswith("decision at ")


def test_a_given_threshold_is_drawn_instead(toy, model, ax):
    display = ScoreDisplay.from_estimator(model, toy.data, toy.target, threshold=2.5, ax=ax)
    assert display.line_.get_xdata()[0] == 2.5
    assert legend_texts(display)[2] == "threshold at 2.5"


def test_other_classifiers_show_decision_values(toy, ax):
    other = LogisticRegression().fit(toy.data, toy.target)
    display = ScoreDisplay.from_estimator(other, toy.data, toy.target, bins=7, ax=ax)
    assert ax.get_xlabel() == "decision value"
    assert display.threshold == 0
    assert len(display.bars_[0].get_data()[0]) == 7
    assert (
        DetDisplay.from_estimator(other, toy.data, toy.target, ax=Figure().subplots()).actual_
        is None
    )
    for calibrated in (ReliabilityDisplay, BayesErrorDisplay):
        with pytest.raises(
            TypeError, match=r"^LogisticRegression gives no log-likelihood ratios; "
        ):
            calibrated.from_estimator(other, toy.data, toy.target, ax=ax)


@pytest.mark.parametrize(
    ("scores", "ends"),
    [
        ([0.0, 0.0, 0.0], (-0.5, 0.5)),
        ([-np.inf, np.inf, 3.0], (3.0, 3.0)),
        ([-np.inf, np.inf, np.inf], (0, 0)),
    ],
)
def test_equal_and_infinite_scores_are_drawn(ax, scores, ends):
    display = ScoreDisplay.from_predictions([0, 1, 1], scores, ax=ax)
    edges = display.bars_[0].get_data()[1]
    assert edges[0] <= ends[0] <= ends[1] <= edges[-1]
    assert np.isfinite(edges).all()
    assert_allclose([np.sum(b.get_data()[0] * np.diff(edges)) for b in display.bars_], 1)


def test_the_det_curve_equals_scikit_learns(ax):
    y, scores = gaussian_scores(2.0, 300)
    display = DetDisplay.from_predictions(y, scores, name="mine", ax=ax)
    match, non_match, _ = det_curve(y, scores)
    drawn = norm.cdf(display.line_.get_data())
    inner = (drawn[0] > 1e-3) & (drawn[1] > 1e-3) & (drawn[0] < 0.9) & (drawn[1] < 0.9)
    points = set(zip(match.round(9), non_match.round(9), strict=True))
    assert inner.sum() > 30
    assert set(zip(*drawn[:, inner].round(9), strict=True)) <= points
    assert legend_texts(display)[0] == "mine"
    assert ax.get_xlabel() == "false match rate (%)"
    assert ax.get_ylabel() == "false non-match rate (%)"
    assert "5" in [label.get_text() for label in ax.get_xticklabels()]


def test_working_points_match_the_metrics(ax):
    y, llr = gaussian_scores(2.0, 400)
    llr = 4 * llr - 2
    costs = {"prior": 0.1, "cost_miss": 2.0}
    display = DetDisplay.from_predictions(y, llr, **costs, ax=ax)
    eer = equal_error_rate(y, llr)[0]
    assert_allclose(norm.cdf(display.eer_.get_data()).ravel(), eer)
    least, best = min_detection_cost(y, llr, **costs)
    for point, threshold in ((display.minimum_, best), (display.actual_, bayes_threshold(**costs))):
        rates = np.mean(llr[y == 0] >= threshold), np.mean(llr[y == 1] < threshold)
        assert_allclose(norm.cdf(point.get_data()).ravel(), rates)
    paid = detection_cost(y, llr, **costs)
    assert legend_texts(display) == [
        "scores",
        f"equal error rate {eer:.2%}",
        f"least cost {least:.3g}, prior 0.1",
        f"actual cost {paid:.3g}, prior 0.1",
    ]
    assert (
        len({point.get_marker() for point in (display.eer_, display.minimum_, display.actual_)})
        == 3
    )


def test_separated_and_reversed_scores_stay_in_the_frame(ax):
    y = np.repeat([0, 1], 50)
    for scores in (np.arange(100.0), -np.arange(100.0), np.zeros(100)):
        display = DetDisplay.from_predictions(y, scores, ax=Figure().subplots())
        low, high = display.ax_.get_xlim()
        for point in (display.eer_, display.minimum_, display.actual_):
            places = np.array(point.get_data())
            assert np.all((places >= low) & (places <= high))
        assert np.isfinite(display.line_.get_data()).all()


def test_a_million_trials_are_drawn_as_few_points(ax):
    y, scores = gaussian_scores(2.0, 200_000)
    display = DetDisplay.from_predictions(y, scores, ax=ax)
    x, line = display.line_.get_data()
    assert 500 < len(x) < 10_000
    # Two Gaussians at distance 2 lie on the line of slope -1 through -1.
    inner = np.abs(x + 1) < 1.5
    assert_allclose(line[inner], -2 - x[inner], atol=0.05)


def test_reliable_ratios_lie_on_the_diagonal(ax):
    y, x = gaussian_scores(1.0, 50_000)
    llr = x - 0.5
    display = ReliabilityDisplay.from_predictions(y, llr, n_bins=8, ax=ax)
    points, _, (bars,) = display.points_
    predicted, observed = points.get_data()
    assert len(predicted) == 8
    assert_allclose(predicted, observed, atol=0.02)
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert np.all(ends[:, 0] <= observed)
    assert np.all(observed <= ends[:, 1])
    assert np.mean((ends[:, 0] <= predicted) & (predicted <= ends[:, 1])) > 0.6
    assert ax.get_xlabel() == "predicted probability at prior 0.5"
    curve = np.array(display.curve_.get_data())
    middle = (curve[0] > 0.1) & (curve[0] < 0.9)
    assert_allclose(curve[0, middle], curve[1, middle], atol=0.06)
    assert np.all(np.diff(curve) >= 0)


def test_bins_match_counts_by_hand(ax):
    y = np.array([0, 0, 1, 0, 1, 1])
    llr = np.array([-2.0, -2.0, -2.0, 1.0, 1.0, 1.0])
    display = ReliabilityDisplay.from_predictions(y, llr, n_bins=5, ax=ax)
    assert_allclose(display.predicted, expit([-2.0, 1.0]))
    assert_allclose(display.observed, [1 / 3, 2 / 3])
    assert_allclose(display.curve, [np.repeat(expit([-2.0, 1.0]), 2), np.repeat([1 / 3, 2 / 3], 2)])
    # At prior 0.8 a positive counts four times as much as a negative.
    display = ReliabilityDisplay.from_predictions(y, llr, prior=0.8, ax=Figure().subplots())
    assert_allclose(display.predicted, expit(np.array([-2.0, 1.0]) + logit(0.8)))
    assert_allclose(display.observed, [4 / 6, 8 / 9])


def test_intervals_are_jeffreys():
    y = np.repeat([1, 0], [30, 70])
    display = ReliabilityDisplay.from_predictions(y, np.zeros(100), ax=Figure().subplots())
    assert_allclose(display.observed, [0.3])
    # The middle 95% of Beta(30.5, 70.5).
    assert_allclose(display.intervals.ravel(), [0.2170, 0.3944], atol=1e-3)


def test_the_bayes_error_equals_the_metrics(ax):
    y, x = gaussian_scores(2.0, 300)
    llr = 3 * x
    display = BayesErrorDisplay.from_predictions(y, llr, ax=ax)
    odds, actual, minimum = bayes_error_curve(y, llr)
    assert_array_equal(display.actual_.get_data(), [odds, actual])
    assert_array_equal(display.minimum_.get_data(), [odds, minimum])
    assert_array_equal(display.default_.get_ydata(), 1)
    assert legend_texts(display) == [
        "ignoring the scores",
        f"actual (Cllr {cllr(y, llr):.3g})",
        f"minimum (minCllr {min_cllr(y, llr):.3g})",
    ]
    assert ax.get_ylabel() == "normalised Bayes error rate"
    ticks = dict(
        zip(
            [label.get_text() for label in display.priors_.get_xticklabels()],
            display.priors_.get_xticks(),
            strict=True,
        )
    )
    assert_allclose(ticks["1%"], np.log(0.01 / 0.99))
    short = BayesErrorDisplay.from_predictions(
        y, llr, prior_log_odds=[-1, 1], ax=Figure().subplots()
    )
    assert short.ax_.get_xlim() == (-1, 1)


@pytest.mark.parametrize("n_subclasses", [1, 10, 25])
def test_the_spectrum_has_a_bar_for_every_axis(toy, ax, n_subclasses):
    X = np.random.default_rng(0).standard_normal((300, 30)) + toy.data[:, :1]
    model = PCSDA(n_subclasses, random_state=0).fit(X, toy.target)
    display = SpectrumDisplay.from_estimator(model, ax=ax)
    assert_allclose([bar.get_height() for bar in display.bars_], model.eigenvalues_)
    texts = [text.get_text() for text in display.texts_]
    shares = np.cumsum(model.eigenvalues_) / model.eigenvalues_.sum()
    assert texts == ([f"{s:.0%}" for s in shares] if n_subclasses <= 12 else [])
    assert ax.get_xlabel() == "axis"
    ticks = ax.get_xticks()
    assert set(ticks) <= set(range(1, n_subclasses + 1))
    assert 1 <= len(ticks) <= 20


def test_spectra_spanning_decades_are_logarithmic(ax):
    display = SpectrumDisplay(eigenvalues=np.array([1e3, 10.0, 0.1])).plot(ax=ax)
    assert ax.get_yscale() == "log"
    assert SpectrumDisplay(eigenvalues=np.array([3.0, 1.0])).plot().ax_.get_yscale() == "linear"
    plt.close("all")
    assert display.ax_ is ax


@pytest.mark.parametrize(
    "estimator",
    [
        CSDA(2, random_state=0),
        KernelPCSDA(n_subclasses=2, random_state=0),
        make_pipeline(NystroemMap(30, random_state=0), PCSDA(2, random_state=0)),
        PCSDACV(
            PCSDA(pos_label=0, random_state=0),
            n_subclasses=[2],
            n_components=[2],
            regularization=[0.01],
        ),
    ],
    ids=["csda", "kernel", "pipeline", "search"],
)
def test_every_estimator_can_be_drawn(toy, estimator):
    estimator.fit(toy.data, toy.target)
    found = [
        display.from_estimator(estimator, toy.data, toy.target, ax=Figure().subplots())
        for display in OF_SCORES
    ]
    assert found[1].eer < 0.3
    assert SpectrumDisplay.from_estimator(estimator, ax=Figure().subplots()).bars_


@EVERY
def test_displays_can_be_drawn_again_on_new_axes(toy, model, display):
    found = display.from_estimator(model, toy.data, toy.target)
    first = found.ax_
    assert found.plot() is found
    assert found.ax_ is not first
    plt.close("all")


@EVERY
def test_bad_input_is_refused(toy, display, ax):
    with pytest.raises(ValueError, match=r"^y_true has 0 negative samples"):
        display.from_predictions([1, 1], [0.0, 1.0], ax=ax)
    with pytest.raises(ValueError, match=r" has 1 NaN among 2 values; remove or replace them$"):
        display.from_predictions([0, 1], [0.0, np.nan], ax=ax)
    with pytest.raises(NotFittedError):
        display.from_estimator(PCSDA(), toy.data, toy.target, ax=ax)


def test_bad_settings_are_refused(ax):
    with pytest.raises(ValueError, match=r"^prior=1 must lie between 0 and 1, both excluded$"):
        ReliabilityDisplay.from_predictions([0, 1], [0.0, 1.0], prior=1, ax=ax)
    with pytest.raises(ValueError, match=r"^n_bins=0 must be at least 1$"):
        ReliabilityDisplay.from_predictions([0, 1], [0.0, 1.0], n_bins=0, ax=ax)
