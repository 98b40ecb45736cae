"""Our estimators in scikit-learn's wrappers: frozen, with a threshold, with routed metadata."""

import numpy as np
import pytest
import sklearn
from factories import make_rows
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import recall_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GroupKFold,
    TunedThresholdClassifierCV,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda
from pcsda import PCSDA, PCSDACV, KernelPCSDA, MixtureVerifier, VerifierBank

X, CLASSES, _ = make_rows([40, 45, 50, 35], 5)
Y = CLASSES == 0
RECORDING = np.arange(len(X)) // 3
VERIFIERS = pytest.mark.parametrize(
    "model", [PCSDA(2, random_state=0), KernelPCSDA(n_subclasses=2, random_state=0)], ids=str
)


@VERIFIERS
def test_a_frozen_verifier_does_not_change(model):
    model.fit(X, Y)
    before = model.log_likelihood_ratio(X)
    frozen = FrozenEstimator(model).fit(X[:50], ~Y[:50])
    assert_array_equal(frozen.log_likelihood_ratio(X), before)
    assert_array_equal(frozen.predict(X), model.predict(X))


@VERIFIERS
def test_a_fixed_threshold_cuts_the_probability(model):
    model.fit(X, Y)
    cut = FixedThresholdClassifier(FrozenEstimator(model), threshold=0.9, pos_label=True).fit(X, Y)
    assert_array_equal(cut.predict(X), model.predict_proba(X)[:, 1] >= 0.9)


@VERIFIERS
@pytest.mark.more
def test_a_tuned_threshold_improves_its_metric(model):
    tuned = TunedThresholdClassifierCV(model, scoring="recall", thresholds=20, cv=3)
    tuned.fit(X, Y)
    assert recall_score(Y, tuned.predict(X)) >= recall_score(Y, model.fit(X, Y).predict(X))


def test_a_search_names_its_columns():
    grid = {"n_subclasses": 3, "n_components": 2, "regularization": 0.1}
    for template in (PCSDA(random_state=0), make_pipeline(StandardScaler(), PCSDA(random_state=0))):
        search = PCSDACV(template, **grid)
        assert not hasattr(search, "_n_features_out")
        z = search.set_output(transform="pandas").fit(X, Y).transform(X)
        assert z.columns.tolist() == ["pcsdacv0", "pcsdacv1"]
        assert search.get_feature_names_out().tolist() == z.columns.tolist()
        assert_array_equal(z, search.best_estimator_.transform(X))
    pipe = make_pipeline(PCSDACV(**grid), StandardScaler()).set_output(transform="pandas")
    assert pipe.fit(X, Y).transform(X).columns.tolist() == ["pcsdacv0", "pcsdacv1"]


def test_groups_reach_a_verifier_through_every_wrapper():
    with sklearn.config_context(enable_metadata_routing=True):
        model = PCSDA(2, random_state=0).set_fit_request(groups=True)
        own = PCSDA(2, random_state=0).fit(StandardScaler().fit_transform(X), Y, groups=RECORDING)
        for join in (make_pipeline, pcsda.make_pipeline):
            pipe = join(StandardScaler(), model).fit(X, Y, groups=RECORDING)
            assert_allclose(pipe[-1].loo_scores_, own.loo_scores_, rtol=1e-10, atol=1e-10)
        alone = PCSDA(2, random_state=0).fit(StandardScaler().fit_transform(X), Y)
        assert not np.allclose(alone.loo_scores_, own.loo_scores_)
        found = cross_validate(
            model, X, Y, params={"groups": RECORDING}, cv=GroupKFold(3), return_estimator=True
        )
        train, _ = next(GroupKFold(3).split(X, Y, RECORDING))
        again = PCSDA(2, random_state=0).fit(X[train], Y[train], groups=RECORDING[train])
        assert_allclose(found["estimator"][0].loo_scores_, again.loo_scores_)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (PCSDACV(PCSDA(random_state=0), n_subclasses=[2], regularization=[0.1]), Y),
        (VerifierBank(PCSDA(2, random_state=0)), CLASSES),
    ],
    ids=["PCSDACV", "VerifierBank"],
)
@pytest.mark.more
def test_groups_reach_searches_and_banks_in_a_pipeline(model, y):
    scaled = StandardScaler().fit_transform(X)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), model.set_fit_request(groups=True))
        routed = pipe.fit(X, y, groups=RECORDING)
    own = sklearn.clone(model).fit(scaled, y, groups=RECORDING)
    assert_allclose(routed.predict_proba(X), own.predict_proba(scaled), rtol=1e-9, atol=1e-12)


class Diary:
    """A callback that records its events."""

    def __init__(self):
        self.heard = []

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X, metadata):
        self.heard.append(("begin", context.estimator_name, len(X), metadata))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.heard.append(("end", fitted_estimator.predict(X[:5]).shape))


@pytest.mark.skipif(not hasattr(PCSDA, "set_callbacks"), reason="callbacks came with 1.9")
@pytest.mark.parametrize(
    "model",
    [
        PCSDA(2, random_state=0),
        KernelPCSDA(n_subclasses=2, random_state=0),
        PCSDACV(PCSDA(random_state=0), n_subclasses=[2], regularization=[0.1]),
        MixtureVerifier(PCSDA(2, random_state=0), n_modes=2),
        VerifierBank(PCSDA(2, random_state=0)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_callbacks_are_told_when_a_fit_begins_and_ends(model):
    diary = Diary()
    model = sklearn.clone(model).set_callbacks(diary)
    model.fit(X, Y)
    name = type(model).__name__
    assert diary.heard == ["setup", ("begin", name, len(X), None), ("end", (5,)), "teardown"]
    plain = sklearn.clone(model).set_callbacks().fit(X, Y)
    assert_allclose(model.predict_proba(X), plain.predict_proba(X))
    model.set_callbacks(diary)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.zeros(len(X)))
    assert diary.heard[-1] == "teardown"
