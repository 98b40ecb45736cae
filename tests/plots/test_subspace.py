"""Displays of the subspace: the tests read back what was drawn from the artists."""

import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from factories import log_ratio_by_scipy
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pcsda import PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, MixtureVerifier, VerifierBank
from pcsda.datasets import make_class_specific
from pcsda.plots import SelectionDisplay, SpectrumDisplay, SubspaceDisplay

matplotlib.use("Agg")


class PlantedModel(TransformerMixin, BaseEstimator):
    """The minimum that a display needs from a fitted estimator."""

    def __init__(self, n_components=2, n_subclasses=3, pos_label=None):
        self.n_components = n_components
        self.n_subclasses = n_subclasses
        self.pos_label = pos_label

    def fit(self, X, y):
        X = np.asarray(X)
        self.classes_ = np.unique(y)
        positive = y == (self.classes_[1] if self.pos_label is None else self.pos_label)
        self.positive_mean_ = X[positive].mean(axis=0)
        self.subclass_means_ = X[~positive][: self.n_subclasses]
        self.eigenvalues_ = 10.0 ** -np.arange(self.n_components)
        return self

    def transform(self, X):
        return (np.asarray(X) - self.positive_mean_)[:, : self.n_components]


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def toy():
    return make_class_specific(300, n_features=3, n_informative=3, n_subclasses=4, random_state=0)


def test_many_subclasses_are_named_in_the_picture_and_not_in_the_legend():
    rng = np.random.default_rng(0)
    z, groups = rng.normal(size=(400, 2)), np.arange(400) % 13
    display = SubspaceDisplay.from_predictions(groups == 0, z, subclasses=groups)
    texts = legend_texts(display)
    positives = int((groups == 0).sum())
    assert texts == [
        f"class of interest (n = {positives})",
        f"rest, in 12 subclasses (n = {400 - positives})",
    ]
    assert [text.get_text() for text in display.texts_] == [str(k) for k in range(1, 13)]


def test_subclasses_are_named_after_their_most_common_label():
    rng = np.random.default_rng(0)
    z, groups = rng.normal(size=(90, 2)), np.arange(90) % 3
    labels = np.where(groups == 1, "eight", np.where(np.arange(90) < 45, "one", "two"))
    display = SubspaceDisplay.from_predictions(groups == 0, z, subclasses=groups, labels=labels)
    assert display.names[1:] == ["subclass 1 (eight)", "subclass 2"]
    assert display.texts_[0].get_text() == "eight"
    # Labels that are the subclasses themselves add nothing.
    display = SubspaceDisplay.from_predictions(
        np.where(groups == 0, 1, labels == "one"), z, subclasses=labels, labels=labels
    )
    assert all("(" not in name for name in display.names)


def test_subclasses_use_the_names_the_model_knows():
    rng = np.random.default_rng(0)
    X, kinds = rng.normal(size=(200, 4)), np.arange(200) % 4
    X += 4 * np.eye(4)[kinds]
    kinds = np.where(np.arange(200) == 2, 1, kinds)  # one row of the second cloud has another label
    kinds = np.array(list("abcd"))[kinds]
    model = PCSDA(n_subclasses=3, pos_label="a", random_state=0).fit(X, kinds)
    display = SubspaceDisplay.from_estimator(model, X, np.where(kinds == "a", "a", "not a"))
    named = [f"subclass {k} ({name})" for k, name in enumerate(model.subclass_names_, 1)]
    assert display.names[1:] == named
    assert sorted(model.subclass_names_) == ["b", "d", "mostly c"]
    assert sorted(text.get_text() for text in display.texts_) == ["b", "c", "d"]


def legend_texts(display):
    return [text.get_text() for text in display.legend_.get_texts()]


def ellipse_covariance(ellipse, level=1.0):
    angle = np.radians(ellipse.angle)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    half_axes = np.array([ellipse.width, ellipse.height]) / 2 / level
    return rotation @ np.diag(half_axes**2) @ rotation.T


@pytest.mark.parametrize("n_subclasses", [1, 10])
def test_from_estimator_draws_every_group_once(toy, ax, n_subclasses):
    model = PlantedModel(n_subclasses=n_subclasses).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert len(display.points_) == n_subclasses + 1
    z = model.transform(toy.data)
    positives = display.points_[0]
    assert_allclose(positives.get_offsets(), z[toy.target == 1])
    drawn = np.vstack([points.get_offsets() for points in display.points_[1:]])
    assert_allclose(np.sort(drawn, axis=0), np.sort(z[toy.target == 0], axis=0))
    colors = {to_hex(points.get_facecolor()[0]) for points in display.points_}
    assert len(colors) == n_subclasses + 1
    assert len(display.texts_) == (0 if n_subclasses == 1 else n_subclasses)
    assert legend_texts(display)[0] == "class of interest (n = 30)"
    assert ax.get_xlabel() == "axis 1 (eigenvalue 1)"
    assert ax.get_ylabel() == "axis 2 (eigenvalue 0.1)"


def test_negatives_go_to_the_nearest_center(toy, ax):
    model = PlantedModel(n_subclasses=4).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    centers = model.transform(model.subclass_means_)
    for group in range(1, 5):
        points = np.asarray(display.points_[group].get_offsets())
        distances = np.linalg.norm(points[:, None] - centers, axis=2)
        assert_array_equal(distances.argmin(axis=1), group - 1)


def test_given_subclasses_name_the_groups(toy, ax):
    model = PlantedModel().fit(toy.data, toy.target)
    kinds = np.array(["b", "a", "d", "c", "positive"])[toy.subclass_labels]
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, subclasses=kinds, ax=ax)
    sizes = {kind: np.sum(kinds == kind) for kind in "abcd"}
    assert legend_texts(display)[1:] == [f"subclass {k} (n = {n})" for k, n in sizes.items()]
    assert [text.get_text() for text in display.texts_] == list("abcd")
    centers = [text.get_position() for text in display.texts_]
    z = model.transform(toy.data)
    assert_allclose(centers, [z[kinds == kind].mean(axis=0) for kind in "abcd"])


def test_ellipses_match_the_samples(toy, ax):
    model = PlantedModel(n_components=3).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(
        model, toy.data, toy.target, subclasses=toy.subclass_labels, axes=(2, 0), ax=ax
    )
    z = model.transform(toy.data)[:, [2, 0]]
    for group, ellipses in enumerate(display.ellipses_):
        members = z[toy.subclass_labels == group - 1]
        assert len(ellipses) == 2
        for level, ellipse in enumerate(ellipses, start=1):
            assert_allclose(ellipse.center, members.mean(axis=0), atol=1e-12)
            assert_allclose(ellipse_covariance(ellipse, level), np.cov(members.T), atol=1e-12)
    assert ax.get_xlabel() == "axis 3 (eigenvalue 0.01)"


def test_given_moments_shape_the_ellipses(ax):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((2, 3, 3))
    covariances, means = root @ root.transpose(0, 2, 1), rng.standard_normal((2, 3))
    display = SubspaceDisplay.from_predictions(
        ["yes", "no"],
        rng.standard_normal((2, 3)),
        pos_label="yes",
        axes=(1, 2),
        means=means,
        covariances=covariances,
        ax=ax,
    )
    for group in range(2):
        inner, outer = display.ellipses_[group]
        assert_allclose(inner.center, means[group, 1:])
        assert_allclose(ellipse_covariance(inner), covariances[group, 1:, 1:], atol=1e-12)
        assert_allclose(outer.width, 2 * inner.width)
    assert legend_texts(display) == ["class of interest: yes (n = 1)", "rest (n = 1)"]
    assert ax.get_xlabel() == "axis 2"


def test_groups_too_small_for_a_covariance_have_no_ellipse(ax):
    z = np.random.default_rng(0).standard_normal((6, 2))
    display = SubspaceDisplay.from_predictions([1, 1, 0, 0, 0, 0], z, ax=ax)
    assert [len(ellipses) for ellipses in display.ellipses_] == [0, 2]


def test_a_missing_class_is_left_out(ax):
    z = np.random.default_rng(0).standard_normal((6, 2))
    display = SubspaceDisplay.from_predictions(np.zeros(6), z, ax=ax)
    assert display.points_[0] is None
    assert legend_texts(display) == ["rest (n = 6)"]
    display = SubspaceDisplay.from_predictions(np.zeros(6), z, axes=(0,), ax=Figure().subplots())
    assert display.points_[0] is None


def test_an_empty_subclass_does_not_shift_the_colours(ax):
    z = np.random.default_rng(0).standard_normal((6, 2))
    groups = np.array([0, 0, 0, 2, 2, 2])
    display = SubspaceDisplay(z=z, groups=groups, names=["a", "b", "c"]).plot(ax=ax)
    assert display.points_[1] is None
    assert to_hex(display.points_[2].get_facecolor()[0]) == "#56b4e9"
    assert [text.get_text() for text in display.texts_] == ["c"]


@pytest.mark.parametrize("n_components", [1, 2])
def test_one_axis_is_drawn_as_histograms(toy, ax, n_components):
    model = PlantedModel(n_components=n_components).fit(toy.data, toy.target)
    axes = (0, 1) if n_components == 1 else (1,)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, axes=axes, ax=ax)
    z = model.transform(toy.data)[:, -1]
    heights, edges, _ = display.points_[0].get_data()
    expected, _ = np.histogram(z[toy.target == 1], bins=edges, density=True)
    assert_allclose(heights, expected)
    assert ax.get_ylabel() == "density within group"
    assert ax.get_xlabel() == (
        "axis 1 (eigenvalue 1)" if n_components == 1 else "axis 2 (eigenvalue 0.1)"
    )
    assert display.ellipses_ == [[]] * 4
    assert len(legend_texts(display)) == 4


def test_the_estimators_pos_label_is_respected(toy, ax):
    model = PlantedModel(pos_label=0).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    assert legend_texts(display)[0] == "class of interest: 0 (n = 270)"


def test_many_subclasses_become_one_group_and_many_labels_get_other_markers(toy, ax):
    model = PlantedModel(n_subclasses=21).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    assert legend_texts(display)[1:] == ["rest (n = 270)"]
    labels = np.arange(300) % 12
    display = SubspaceDisplay.from_estimator(
        model, toy.data, toy.target, subclasses=labels, ax=Figure().subplots()
    )
    first, eleventh = display.points_[1], display.points_[11]
    assert_array_equal(first.get_facecolor(), eleventh.get_facecolor())
    assert len(first.get_paths()[0]) != len(eleventh.get_paths()[0])


def test_pipelines_and_named_columns_are_drawn(toy, ax):
    frame = pd.DataFrame(toy.data, columns=list("abc"))
    pipeline = make_pipeline(StandardScaler(), PlantedModel()).fit(frame, toy.target)
    display = SubspaceDisplay.from_estimator(pipeline, frame, toy.target, ax=ax)
    assert_allclose(display.points_[0].get_offsets(), pipeline.transform(frame)[toy.target == 1])


def test_plot_can_be_repeated_on_a_new_figure(toy, ax):
    display = SubspaceDisplay.from_predictions(toy.target, toy.data, ax=ax)
    again = display.plot()
    assert again is display
    assert display.ax_ is not ax
    assert len(display.ax_.collections) == 2
    plt.close(display.figure_)


def test_missing_matplotlib_names_the_extra(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"is not installed; pip install pcsda\[plot\]$"):
        SubspaceDisplay.from_predictions(toy.target, toy.data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"axes": (0, 3)},
            r"^axes=\(0, 3\) must lie between 0 and 2 \(= n_components - 1\); choose other axes",
        ),
        ({"axes": (0, 1, 2)}, r"^axes=\(0, 1, 2\) must have 1 or 2 entries; name one or two"),
        (
            {"means": np.zeros((3, 3))},
            r"^means has shape \(3, 3\) but must have \(2, 3\): the class of interest, then the"
            r" subclasses present in sorted order$",
        ),
        ({"covariances": np.eye(3)}, r"^covariances has shape \(3, 3\) but must have \(2, 3, 3\)"),
        ({"subclasses": [1, 2]}, r"inconsistent numbers of samples: \[300, 300, 2\]$"),
    ],
)
def test_bad_input_is_refused(toy, ax, options, message):
    with pytest.raises(ValueError, match=message):
        SubspaceDisplay.from_predictions(toy.target, toy.data, ax=ax, **options)


def test_unfitted_estimator_is_refused(toy, ax):
    with pytest.raises(NotFittedError):
        SubspaceDisplay.from_estimator(PlantedModel(), toy.data, toy.target, ax=ax)


def test_the_contour_lies_where_the_decision_changes(ax):
    toy = make_class_specific(400, n_features=2, n_informative=2, n_subclasses=3, random_state=0)
    model = PCSDA(3, 2, random_state=0).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    (path,) = display.decision_.get_paths()
    z = path.vertices
    assert len(z) > 50
    # Two features and two axes: the projection can be undone.
    x = z @ np.linalg.inv(model.components_).T + model.positive_mean_
    assert np.abs(model.decision_function(x)).max() < 0.05
    assert np.abs(model.decision_function(toy.data)).max() > 3
    assert legend_texts(display)[-1] == "decision"


@pytest.mark.parametrize("pos_label", [0, 1])
def test_on_one_axis_the_decision_is_a_line(ax, pos_label):
    X, y = make_blobs(200, 3, centers=2, cluster_std=2.0, random_state=0)
    model = PCSDA(1, pos_label=pos_label, priors=(0.3, 0.7), random_state=0).fit(X, y)
    display = SubspaceDisplay.from_estimator(model, X, y, ax=ax)
    along = model.components_[0] / (model.components_[0] @ model.components_[0])
    assert len(display.decision_) in (1, 2)
    for line in display.decision_:
        place = line.get_xdata()[0]
        step = 1e-3 * np.ptp(model.transform(X))
        sides = model.positive_mean_ + np.outer([place - step, place + step], along)
        assert np.prod(np.sign(model.decision_function(sides))) == -1


def test_with_more_axes_the_contour_uses_the_marginals(toy, ax):
    model = PCSDA(4, 3, calibrate=False, priors="equal", random_state=0)
    model.fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, axes=(2, 0), ax=ax)
    z = np.vstack([path.vertices for path in display.decision_.get_paths()])
    assert model.density_.axis is not None
    assert np.abs(log_ratio_by_scipy(model.density_.margin([2, 0]), z)).max() < 0.05
    assert legend_texts(display)[-1] == "decision by these axes alone"


def test_the_contour_does_not_change_the_view(toy, ax, caplog):
    model = PCSDA(4, 2, random_state=0).fit(toy.data, toy.target)
    with_it = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    without = SubspaceDisplay.from_estimator(
        model, toy.data, toy.target, contour=False, ax=Figure().subplots()
    )
    for display in (with_it, without):
        display.figure_.draw_without_rendering()
    assert_allclose(with_it.ax_.get_xlim(), without.ax_.get_xlim())
    assert_allclose(with_it.ax_.get_ylim(), without.ax_.get_ylim())
    assert without.decision_ is None
    assert "decision" not in legend_texts(without)
    assert not caplog.records


def test_a_decision_that_never_changes_is_not_drawn(toy, ax):
    display = SubspaceDisplay.from_predictions(
        toy.target, toy.data, decision=lambda points: np.ones(len(points)), ax=ax
    )
    assert display.decision_ is None
    assert len(legend_texts(display)) == 2


@pytest.mark.parametrize("kernel", [KernelPCSDA, KernelCSDA])
def test_kernel_models_are_drawn(toy, ax, kernel):
    model = kernel(n_components=2, random_state=0)
    if kernel is KernelPCSDA:
        model.set_params(n_subclasses=3)
    model.fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(model, toy.data, toy.target, ax=ax)
    assert len(display.points_) == 1 + len(model.subclass_counts_)


def test_searches_are_drawn(toy):
    grids = {"n_subclasses": [2], "n_components": [2], "regularization": [0.01]}
    search = PCSDACV(PCSDA(random_state=0), **grids).fit(toy.data, toy.target)
    display = SubspaceDisplay.from_estimator(search, toy.data, toy.target, ax=Figure().subplots())
    assert_allclose(display.z, search.transform(toy.data))
    assert len(display.points_) == 3


@pytest.fixture(scope="module")
def search():
    data = make_class_specific(600, n_features=8, n_informative=2, random_state=0)
    grids = {"n_subclasses": [1, 3, 6], "n_components": [1, 2, 3], "regularization": [0.01, 0.1]}
    return PCSDACV(PCSDA(random_state=0), **grids).fit(data.data, data.target)


def test_the_selection_surface_shows_the_best_ridge_of_every_k_and_d(search, ax):
    display = SelectionDisplay.from_estimator(search, ax=ax)
    shown = display.mesh_.get_array().reshape(3, 3)
    results = search.cv_results_
    for row, k in enumerate([1, 3, 6]):
        for column, d in enumerate([1, 2, 3]):
            here = (results["param_n_subclasses"] == k) & (results["param_n_components"] == d)
            if d > k:
                assert shown.mask[row, column]
            else:
                assert shown[row, column] == results["mean_test_score"][here].max()


def test_the_selection_surface_marks_the_choice_and_names_its_axes(search, ax):
    display = SelectionDisplay.from_estimator(search, ax=ax)
    x, y = display.chosen_.get_offsets()[0]
    assert display.n_components[int(x)] == search.best_params_["n_components"]
    assert display.n_subclasses[int(y)] == search.best_params_["n_subclasses"]
    x, y = display.best_.get_offsets()[0]
    assert display.scores[int(y), int(x)] == search.cv_results_["mean_test_score"].max()
    assert ax.get_xlabel() == "number of axes d"
    assert ax.get_ylabel() == "number of subclasses K"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]


def test_a_large_surface_labels_every_second_tick(ax):
    scores = np.random.default_rng(0).standard_normal((2, 20))
    display = SelectionDisplay(
        scores=scores,
        n_subclasses=np.array([10, 20]),
        n_components=np.arange(1, 21),
        chosen=(10, 4),
    ).plot(ax=ax)
    shown = [label.get_text() for label in ax.get_xticklabels() if label.get_visible()]
    assert shown == [str(d) for d in range(1, 21, 2)]
    assert_allclose(display.chosen_.get_offsets(), [[3.5, 0.5]])


@pytest.mark.parametrize("estimator", [VerifierBank(), MixtureVerifier(n_modes=2)])
def test_what_a_bank_or_mixture_cannot_show_is_named(estimator):
    X, y = make_blobs(60, 4, centers=2, random_state=0)
    model = estimator.fit(X, y)
    own = rf"^{type(model).__name__} has no \w+ of its own; draw one of the models in models_"
    with pytest.raises(TypeError, match=own):
        SpectrumDisplay.from_estimator(model)
    with pytest.raises(TypeError, match=own):
        SubspaceDisplay.from_estimator(model, X, y)
    for each in (model, PCSDA().fit(X, y)):
        with pytest.raises(TypeError, match=r"has no search to draw; give a fitted PCSDACV, or"):
            SelectionDisplay.from_estimator(each)
