"""Model files: loading gives the saved model or a message, and never runs code."""

import hashlib
import importlib
import io
import json
import os
import pickle
import pkgutil
import subprocess
import sys
import zipfile
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest
import skops.io
from factories import in_turn, tails_of, with_heavy_tails
from hypothesis import given
from hypothesis import strategies as st
from kernel_factories import labelled, rational
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectPercentile, chi2, f_classif, mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import pcsda
from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    ExactKernelMap,
    FourierMap,
    KernelCSDA,
    KernelPCSDA,
    NystroemMap,
    VerifierBank,
    load,
    save,
)
from pcsda.persistence import FORMAT, OWN_TYPES, describe

X, Y, GROUPS = labelled(sizes=[30, 25, 28, 20])
NEW = labelled(sizes=[9, 8, 9, 8], seed=1)[0]
MODELS = {
    "PCSDA": PCSDA(3, random_state=0),
    "PCSDA.published": PCSDA.published(2, priors=(0.3, 0.7), pos_label=0),
    "PCSDA with a RandomState": PCSDA(3, random_state=np.random.RandomState(3)),
    "PCSDA with KMeans": PCSDA(subclasses=KMeans(2, n_init=1, random_state=0)),
    "CSDA": CSDA(2),
    "contamination": PCSDA(3, contamination=0.1, random_state=0),
    "contamination of a kernel": KernelPCSDA(contamination=0.1, random_state=0),
    "KernelPCSDA": KernelPCSDA(n_subclasses=2, random_state=0),
    "KernelCSDA": KernelCSDA(kernel="polynomial", n_components=2, random_state=0),
    "PCSDACV": PCSDACV(n_subclasses=[1, 2], regularization=[0.01, 0.1]),
    "PCSDACV of a pipeline": PCSDACV(
        make_pipeline(StandardScaler(), NystroemMap(20, random_state=0), PCSDA(random_state=0)),
        n_subclasses=2,
        gamma=["all", 0.1],
        cv=2,
    ),
    "NystroemMap pipeline": make_pipeline(
        StandardScaler(), NystroemMap(20, landmarks="kmeans", random_state=0), PCSDA(2)
    ),
    "FourierMap pipeline": make_pipeline(
        MinMaxScaler(), FourierMap(20, random_state=0), PCSDA(2, random_state=0)
    ),
    "ExactKernelMap pipeline": make_pipeline(ExactKernelMap(), PCSDA(2, random_state=0)),
}
EVERY_MODEL = in_turn("name", list(MODELS))


def outputs(model, rows):
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        yield getattr(model, method)(rows)
    for method in ("log_likelihood_ratio", "score_samples"):
        if hasattr(model, method):
            yield getattr(model, method)(rows)


def assert_same(restored, model, rows=NEW):
    assert type(restored) is type(model)
    for found, expected in zip(outputs(restored, rows), outputs(model, rows), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@EVERY_MODEL
def test_a_loaded_model_equals_the_saved_one(name, tmp_path):
    model = MODELS[name].fit(X, Y)
    save(model, tmp_path / "m.pcsda")
    restored = load(tmp_path / "m.pcsda")
    assert_same(restored, model)
    assert vars(restored).keys() == vars(model).keys()
    assert os.listdir(tmp_path) == ["m.pcsda"]


@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA])
def test_tails_and_weights_survive_saving(kind, tmp_path):
    model = kind(n_subclasses=3, random_state=0).fit(with_heavy_tails(X, 1 - Y), Y)
    assert np.isfinite(tails_of(model.density_)).all()
    assert len(model.calibration_.weights) == 2
    save(model, tmp_path / "m.pcsda")
    restored = load(tmp_path / "m.pcsda")
    assert_same(restored, model)
    assert tails_of(restored.density_) == tails_of(model.density_)
    assert restored.calibration_ == model.calibration_
    np.testing.assert_array_equal(restored.density_.axis, model.density_.axis)


@pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
def test_files_from_before_densities_had_their_own_modules_still_load(negatives, tmp_path):
    def change(_, content):
        for new in (b"pcsda.core.mixture", b"pcsda.core.blend", b"pcsda.core.near"):
            content = content.replace(new, b"pcsda.core.density")
        return content

    model = PCSDA(3, negatives=negatives, random_state=0).fit(X, Y)
    earlier = repacked(skops.io.dumps(model), change)
    assert b"pcsda.core.density" in earlier
    assert_same(load(forged(tmp_path / "m", earlier)), model)


@pytest.mark.parametrize("kind", [ExactKernelMap, NystroemMap, FourierMap])
def test_maps_can_be_saved_alone(kind, tmp_path):
    model = kind(random_state=0).fit(X)
    save(model, tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").transform(NEW), model.transform(NEW))


LABELS = {
    "bool": np.array([False, True]),
    "int": np.array([-3, 0, 7, 100]),
    "float": np.array([0.0, 1.0, 4.0]),
    "str": np.array(["a", "b", "ä ö"]),
    "object": np.array(["one", "two", "three"], dtype=object),
}


@pytest.mark.each_value
@in_turn("kind", list(LABELS))
@pytest.mark.parametrize("estimator", [PCSDA(2), KernelPCSDA(n_subclasses=2, gamma="all")])
def test_a_bank_with_labels_of_any_type_survives_saving(kind, estimator, tmp_path):
    names = LABELS[kind]
    labels = names[GROUPS % len(names)]
    bank = VerifierBank(estimator).fit(X, labels)
    save(bank, tmp_path / "m")
    restored = load(tmp_path / "m")
    assert restored.models_.keys() == bank.models_.keys()
    assert [type(label) for label in restored.models_] == [type(label) for label in bank.models_]
    for method in ("predict", "predict_proba", "log_likelihood_ratio"):
        np.testing.assert_array_equal(getattr(restored, method)(NEW), getattr(bank, method)(NEW))
    copy = pickle.loads(pickle.dumps(bank))
    np.testing.assert_array_equal(copy.predict(NEW), bank.predict(NEW))


@pytest.mark.parametrize("estimator", [PCSDA(2), KernelPCSDA(n_subclasses=2, gamma="all")])
def test_a_loaded_bank_can_be_updated(estimator, tmp_path):
    bank = VerifierBank(estimator).fit(X, GROUPS)
    save(bank, tmp_path / "m")
    restored = load(tmp_path / "m")
    for one in (bank, restored):
        one.enroll(NEW[:12] + 3, 9).remove(1)
    # The file leaves the factorisation out, so that one is made anew where the other is updated.
    np.testing.assert_allclose(
        restored.log_likelihood_ratio(NEW), bank.log_likelihood_ratio(NEW), rtol=1e-9, atol=1e-9
    )
    restored.refresh()


def test_a_loaded_banks_models_still_share_their_rows(tmp_path):
    save(VerifierBank(KernelPCSDA(gamma="all")).fit(X, GROUPS), tmp_path / "m")
    bank = load(tmp_path / "m")
    assert all(np.shares_memory(model.X_fit_, bank._rows.X) for model in bank.models_.values())


def test_a_loaded_stream_can_be_continued(tmp_path):
    batches = [slice(0, 50), slice(50, None)]
    whole = PCSDA(2, random_state=0)
    for batch in batches:
        whole.partial_fit(X[batch], Y[batch], subclass_labels=GROUPS[batch])
    half = PCSDA(2, random_state=0).partial_fit(X[:50], Y[:50], subclass_labels=GROUPS[:50])
    save(half, tmp_path / "m")
    rest = load(tmp_path / "m").partial_fit(X[50:], Y[50:], subclass_labels=GROUPS[50:])
    assert_same(rest, whole)
    first = ExactKernelMap(gamma=0.1).fit(X[:50])
    save(first, tmp_path / "map")
    np.testing.assert_array_equal(
        load(tmp_path / "map").partial_fit(X[50:]).transform(NEW),
        first.partial_fit(X[50:]).transform(NEW),
    )


def test_a_file_does_not_grow_with_use(tmp_path):
    model = PCSDA(3, random_state=0).fit(X, Y)
    model.predict(NEW)
    save(model, tmp_path / "used")
    used = load(tmp_path / "used").density_
    for part, restored in ((model.density_, used), (model.density_.base, used.base)):
        assert vars(restored).keys() == {field.name for field in fields(part)}
        assert vars(part).keys() > vars(restored).keys()
    model.predict(NEW)  # what is cached stays usable after it was left out


def test_float32_column_names_and_memory_maps_survive_saving(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.astype(np.float32), columns=[f"x{i}" for i in range(X.shape[1])])
    model = PCSDA(2, random_state=0).fit(frame, Y)
    save(model, tmp_path / "m")
    assert_same(load(tmp_path / "m"), model, frame)
    assert describe(tmp_path / "m")["feature_names"] == list(frame.columns)
    np.save(tmp_path / "X.npy", X)
    mapped = KernelPCSDA(n_subclasses=2, random_state=0)
    mapped.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), Y)
    save(mapped, tmp_path / "m")
    assert_same(load(tmp_path / "m"), mapped)


def test_a_file_states_its_facts(tmp_path):
    model = make_pipeline(StandardScaler(), PCSDA(3, n_components=2, pos_label=0)).fit(X, Y)
    metrics = {"eer": np.float64(0.25), "interval": np.array([0.2, 0.3]), "trials": 40}
    save(model, tmp_path / "m", metrics=metrics)
    facts = describe(tmp_path / "m")
    saved = datetime.fromisoformat(facts.pop("saved"))
    assert abs(datetime.now(UTC) - saved) < timedelta(minutes=1)
    versions = facts.pop("versions")
    assert versions.keys() == {"python", "numpy", "scikit-learn", "skops"}
    assert versions["numpy"] == np.__version__
    assert facts == {
        "format": FORMAT,
        "pcsda": version("pcsda"),
        "model": "Pipeline(StandardScaler, PCSDA)",
        "n_samples": 103,
        "n_positive": 73,
        "n_features": 5,
        "feature_names": None,
        "classes": [0, 1],
        "pos_label": 0,
        "n_subclasses": 3,
        "n_components": 2,
        "rows_held": 0,
        "metrics": {"eer": 0.25, "interval": [0.2, 0.3], "trials": 40},
    }


def facts_of(model, tmp_path):
    save(model, tmp_path / "m")
    return describe(tmp_path / "m")


def test_files_of_other_models_state_their_facts(tmp_path):
    facts = facts_of(VerifierBank(PCSDA(2)).fit(X, GROUPS), tmp_path)
    assert (facts["model"], facts["n_samples"]) == ("VerifierBank(PCSDA)", 103)
    assert (facts["classes"], facts["pos_label"]) == ([0, 1, 2, 3], None)
    facts = facts_of(MODELS["PCSDACV of a pipeline"].fit(X, Y), tmp_path)
    assert facts["model"] == "PCSDACV(Pipeline(StandardScaler, NystroemMap, PCSDA))"
    assert (facts["n_samples"], facts["n_positive"], facts["pos_label"]) == (103, 30, 1)
    stream = PCSDA(2).partial_fit(X, Y, subclass_labels=GROUPS)
    facts = facts_of(stream, tmp_path)
    assert (facts["n_samples"], facts["n_positive"]) == (103, 30)
    weights = np.full(len(Y), 0.5)
    facts = facts_of(CSDA(2).partial_fit(X, Y, sample_weight=weights), tmp_path)
    assert (facts["n_samples"], facts["n_positive"]) == (51.5, 15)
    facts = facts_of(FourierMap(4).fit(X), tmp_path)
    assert (facts["model"], facts["classes"], facts["n_samples"]) == ("FourierMap", None, None)


def test_metrics_that_cannot_be_stored_are_refused(tmp_path):
    model = PCSDA(2).fit(X, Y)
    with pytest.raises(TypeError, match=r"metrics contains <object object at .* of type object; a"):
        save(model, tmp_path / "m", metrics={"eer": object()})
    assert os.listdir(tmp_path) == []


class Halves(ClusterMixin, BaseEstimator):
    """A clusterer that no model file knows."""

    def fit(self, X, y=None):
        self.labels_ = (X[:, 0] > np.median(X[:, 0])).astype(int)
        return self


def by_accuracy(y, scores):
    return np.mean((scores > 0) == y)


FOREIGN = {
    "kernel": (KernelPCSDA(kernel=rational, n_subclasses=2), "kernel is kernel_factories.rational"),
    "lambda": (KernelPCSDA(kernel=lambda a, b: a @ b, n_subclasses=2), "kernel is .*<lambda>"),
    "map": (
        make_pipeline(NystroemMap(9, kernel=rational), PCSDA(2)),
        "steps.kernel is kernel_factories.rational",
    ),
    "clusterer": (PCSDA(subclasses=Halves()), "subclasses is .*Halves"),
    "scoring": (PCSDACV(n_subclasses=2, scoring=by_accuracy), "scoring is .*by_accuracy"),
    "search": (
        GridSearchCV(PCSDA(random_state=0), {"n_subclasses": [1, 2]}, cv=2),
        # What comes first differs between versions of scikit-learn.
        r"(_checked_cv_orig is .*StratifiedKFold|scorer_\S+ is .*MethodMetadataRequest)",
    ),
    "splitter": (PCSDACV(n_subclasses=2, cv=StratifiedKFold(2)), "cv is .*StratifiedKFold"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_save_refuses_what_load_would_refuse(name, tmp_path):
    model, what = FOREIGN[name]
    (tmp_path / "m").write_bytes(b"the model before")
    with pytest.raises(TypeError, match=f"cannot be saved: its {what}, but a model file"):
        save(model.fit(X, Y), tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"the model before"
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("score", [f_classif, chi2, mutual_info_classif])
def test_selectors_of_columns_can_be_saved(score, tmp_path):
    rows = np.abs(X)
    model = make_pipeline(SelectPercentile(score, percentile=50), PCSDA(random_state=0))
    save(model.fit(rows, Y), tmp_path / "m")
    found = load(tmp_path / "m")
    assert found[0].score_func is score
    assert_array_equal(found.predict_proba(rows), model.predict_proba(rows))


def test_a_searchs_chosen_model_can_be_saved(tmp_path):
    search = FOREIGN["search"][0].fit(X, Y)
    with pytest.raises(
        TypeError, match=r"estimators\); replace the search with its best_estimator_"
    ):
        save(search, tmp_path / "m")
    save(search.best_estimator_, tmp_path / "m")
    assert_same(load(tmp_path / "m"), search.best_estimator_)


def kinds_of(kind):
    for narrower in kind.__subclasses__():
        yield narrower
        yield from kinds_of(narrower)


def test_every_estimator_of_the_library_is_on_the_list():
    for module in pkgutil.walk_packages(pcsda.__path__, "pcsda."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {
        kind
        for kind in kinds_of(BaseEstimator)
        if kind.__module__.split(".")[0] == "pcsda"
        and kind.__name__[0] != "_"
        and hasattr(kind, "fit")
    }
    assert PCSDA in ours
    assert ours <= {*OWN_TYPES}


def test_scikit_learns_own_clusterers_are_known(tmp_path):
    model = PCSDA(subclasses=AgglomerativeClustering(2)).fit(X, Y)
    save(model, tmp_path / "m")
    assert_same(load(tmp_path / "m"), model)


def test_keys_that_json_would_change_are_refused(tmp_path):
    model = make_pipeline(PCSDA(2), LogisticRegression(class_weight={True: 2.0, False: 1.0}))
    with pytest.raises(TypeError, match=r"dictionary steps.class_weight has keys of type bool"):
        save(model.fit(X, Y == 1), tmp_path / "m")


def test_only_fitted_estimators_are_saved(tmp_path):
    with pytest.raises(NotFittedError, match="PCSDA instance is not fitted yet"):
        save(PCSDA(), tmp_path / "m")
    for other in ({"a": 1}, PCSDA):
        with pytest.raises(TypeError, match="save takes a fitted estimator, got "):
            save(other, tmp_path / "m")
    held = PCSDA(2).fit(X, Y)
    held.note_ = (row for row in X)
    with pytest.raises(TypeError, match=r"PCSDA cannot be saved: .*generator"):
        save(held, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_keeps_the_earlier_model(tmp_path, monkeypatch):
    save(PCSDA(2, random_state=0).fit(X, Y), tmp_path / "m")
    before = (tmp_path / "m").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        save(PCSDA(3).fit(X, Y), tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a small model file and a path for altered copies."""
    path = tmp_path_factory.mktemp("files") / "small"
    save(CSDA(1, calibrate=False).fit(X[:, :2], Y), path)
    return path


REFUSALS = "is not a pcsda model file|is damaged: it was cut off or altered|has format [0-9]+, and"


def refused(small, data):
    path = small.with_name("altered")
    path.write_bytes(data)
    for read in (load, describe):
        with pytest.raises(ValueError, match=REFUSALS):
            read(path)


@given(st.data())
def test_a_changed_byte_anywhere_is_detected(small, data):
    content = bytearray(small.read_bytes())
    places = st.integers(0, len(content) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=4, unique=True)):
        content[place] ^= data.draw(st.integers(1, 255))
    refused(small, bytes(content))


def test_a_flipped_bit_anywhere_is_detected(small):
    content = small.read_bytes()
    path = small.with_name("altered")
    head = content.index(b"PK")
    for place in [*range(0, head, 3), *range(head, len(content), 101)]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ValueError, match=REFUSALS):
            describe(path)


@given(st.data())
def test_a_truncated_or_extended_file_is_refused(small, data):
    content = small.read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    refused(small, content[:cut])
    refused(small, content + data.draw(st.binary(min_size=1, max_size=9)))
    inserted = data.draw(st.binary(min_size=1, max_size=9))
    moved = content[:cut] + inserted + content[cut:]
    if moved != content:
        refused(small, moved)


def test_the_messages_say_what_is_wrong(small):
    content = small.read_bytes()
    path = small.with_name("other")
    path.write_bytes(b"pcsda-model 12 " + content[14:])
    message = f"other has format 12, and pcsda {version('pcsda')} reads up to {FORMAT}; install a"
    with pytest.raises(ValueError, match=message):
        load(path)
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=rf"other is damaged: .* \({len(content) - 1} bytes"):
        load(path)
    for kind in (b"", pickle.dumps(1), skops.io.dumps(PCSDA()), b"pcsda-model\n", b"\0" * 99):
        path.write_bytes(kind)
        with pytest.raises(ValueError, match=r"other is not a pcsda model file \(it begins with"):
            load(path)
    with pytest.raises(FileNotFoundError, match="gone"):
        load(path.with_name("gone"))
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a model file"):
        load(path.parent)


def forged(path, payload, facts=b"{}"):
    """Write a file with a correct checksum, as someone who knows the format can."""
    body = facts + b"\n" + payload
    digest = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(b"pcsda-model 1 " + digest + b"\n" + body)
    return path


def repacked(payload, change, compression=zipfile.ZIP_STORED):
    """Return a skops archive with some entries replaced."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as source, zipfile.ZipFile(result, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)), compression)
    return result.getvalue()


class Opens:
    """Pickles to a call that creates a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def node(loader, module, name, **more):
    return {"__loader__": loader, "__module__": module, "__class__": name, **more}


def calls(trace):
    """Yield skops nodes of every kind that would call or import something."""
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    words = [text | {"content": json.dumps(word)} for word in (str(trace), "w")]
    words = node("TupleNode", "builtins", "tuple", content=words)
    empty = node("DictNode", "builtins", "dict", content={}, key_types=words | {"content": []})
    function = node("FunctionNode", "builtins", "open")
    none = text | {"content": "null"}
    partial = {"func": function, "args": words, "kwds": empty, "namespace": none}
    reduce = {"__reduce__": {"args": words}, "content": empty}
    yield node("ConstructorFromReduceNode", "builtins", "open", content=words)
    yield node("ObjectNode", "leaves_a_trace", "Thing", content=empty)
    yield node("FunctionNode", "leaves_a_trace", "thing")
    yield node("TypeNode", "leaves_a_trace", "Thing")
    yield node("ListNode", "leaves_a_trace", "Thing", content=[])
    yield node("DictNode", "leaves_a_trace", "Thing", content={}, key_types=empty["key_types"])
    yield node("PartialNode", "functools", "partial", content=partial)
    yield node("OperatorFuncNode", "operator", "methodcaller", attrs=words)
    yield node("MethodNode", "builtins", "tuple", content={"obj": words, "func": "index"})
    yield node("LossNode", "builtins", "open", **reduce)
    yield node("TreeNode", "builtins", "open", **reduce)
    yield node("NdArrayNode", "leaves_a_trace", "Thing", type="json", content=[], shape=words)
    yield node("NoSuchNode", "builtins", "open", content=words)
    yield node("ConstructorFromReduceNode", "pcsda.estimators", "os.system", content=words)


@pytest.mark.each_value
@pytest.mark.parametrize("number", range(14))
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a model"])
def test_a_malicious_file_runs_nothing(number, inside, tmp_path, monkeypatch):
    trace = tmp_path / "trace"
    (tmp_path / "leaves_a_trace.py").write_text(f"open({str(trace)!r}, 'w')\ndef thing(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    attack = list(calls(trace))[number]

    def change(name, content):
        if name != "schema.json":
            return content
        schema = json.loads(content)
        if not inside:
            return json.dumps(attack | {"protocol": schema["protocol"]})
        schema["content"]["content"]["solver"] = attack
        return json.dumps(schema)

    payload = repacked(skops.io.dumps(CSDA(2).fit(X, Y)), change)
    path = forged(tmp_path / "m", payload)
    with pytest.raises(
        ValueError,
        match=r"which model files never do; nothing was executed|cannot be read as a model",
    ):
        load(path)
    assert not trace.exists()
    assert "leaves_a_trace" not in sys.modules
    assert describe(path) == {}


def test_every_attack_is_tried():
    assert len(list(calls("x"))) == 14


def test_the_message_names_the_foreign_type(tmp_path):
    model = KernelPCSDA(kernel=rational, n_subclasses=2).fit(X, Y)
    path = forged(tmp_path / "m", skops.io.dumps(model))
    with pytest.raises(
        ValueError, match=r"m contains kernel_factories.rational, which model files"
    ):
        load(path)


def test_arrays_are_not_unpickled(tmp_path):
    trace = tmp_path / "trace"

    def change(name, content):
        if not name.endswith(".npy"):
            return content
        buffer = io.BytesIO()
        np.save(buffer, np.array([Opens(trace)], dtype=object), allow_pickle=True)
        return buffer.getvalue()

    path = forged(tmp_path / "m", repacked(skops.io.dumps(CSDA(2).fit(X, Y)), change))
    with pytest.raises(ValueError, match="m cannot be read as a model: Object arrays cannot"):
        load(path)
    assert not trace.exists()


def test_forged_files_of_other_kinds_are_refused(tmp_path):
    good = skops.io.dumps(CSDA(2).fit(X, Y))
    kinds = {
        "File is not a zip file": b"nothing",
        "it holds a dict, not an estimator": skops.io.dumps({"a": 1}),
        "its entries would take [0-9]+ bytes, more than": repacked(
            good, lambda _, c: c, zipfile.ZIP_DEFLATED
        ),
        "protocol": repacked(good, lambda n, c: c.replace(b'"protocol": ', b'"protocol": 9')),
        "There is no item named 'schema.json'": repacked(good, lambda n, c: c).replace(
            b"schema.json", b"schema.jsan"
        ),
    }
    for message, payload in kinds.items():
        path = forged(tmp_path / "m", payload)
        with pytest.raises(ValueError, match=f"m cannot be read as a model: .*{message}"):
            load(path)
    for facts in (b"[1]", b"{", b"3"):
        path = forged(tmp_path / "m", good, facts)
        with pytest.raises(ValueError, match="m cannot be read as a model"):
            describe(path)


def without_skops(package):
    if package == "skops":
        raise PackageNotFoundError(package)
    return version(package)


def test_skops_is_named_where_it_is_missing(tmp_path, monkeypatch, small):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.delitem(sys.modules, "skops.io")
    monkeypatch.setattr("pcsda.persistence.version", without_skops)
    message = r'model files need skops, which is not installed: pip install "pcsda\[skops\]"'
    with pytest.raises(ImportError, match=message):
        save(PCSDA(2).fit(X, Y), tmp_path / "m")
    with pytest.raises(ImportError, match=message):
        load(small)
    assert describe(small)["model"] == "CSDA"  # facts need no library


@pytest.mark.more  # files of an earlier version come from other processes as well
def test_another_process_reads_the_same_model(tmp_path):
    model = KernelPCSDA(n_subclasses=2, random_state=0).fit(X, Y)
    save(model, tmp_path / "m")
    np.save(tmp_path / "new.npy", NEW)
    code = (
        "import sys, numpy, pcsda; folder = sys.argv[1];"
        "model = pcsda.load(folder + '/m');"
        "numpy.save(folder + '/llr.npy',"
        " model.log_likelihood_ratio(numpy.load(folder + '/new.npy')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "llr.npy"), model.log_likelihood_ratio(NEW))
