"""Files that claim more than they hold are refused before they take memory or time."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
import skops.io
from kernel_factories import labelled

from pcsda import CSDA, PCSDA, archive, fit_blocks, load
from pcsda.persistence import describe

X, Y, _ = labelled(sizes=[30, 25])
FACTS = b'{"format": 2}'


@pytest.fixture(scope="module")
def packed():
    """Return the entries of a packed model."""
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(CSDA(2).fit(X, Y)))) as source:
        return {name: source.read(name) for name in source.namelist()}


def forged(path, entries, facts=FACTS):
    """Write a model file with these entries and a correct checksum."""
    payload = io.BytesIO()
    with zipfile.ZipFile(payload, "w") as target:
        for name, content in entries.items():
            target.writestr(name, content)
    body = facts + b"\n" + payload.getvalue()
    digest = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(b"pcsda-model 2 " + digest + b"\n" + body)
    return path


def node(content, number, **more):
    kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    return {**kind, "content": content, "__id__": number, **more}


def test_nodes_that_refer_to_each_other_are_not_walked(tmp_path):
    """A file of 4.6 kB made `load` walk 2^40 nodes."""
    schema = node([], 1)
    for number in range(2, 40):
        reference = node([], number - 1)
        schema = node([schema, reference, reference], number)
    schema |= {"protocol": 2, "_skops_version": "0.16"}
    path = forged(tmp_path / "m", {"schema.json": json.dumps(schema)})
    with pytest.raises(ValueError, match="its node 2 occurs with two different contents"):
        load(path)


def test_a_tree_that_is_too_deep_is_refused(tmp_path):
    schema = node([], 1)
    for number in range(2, 200):
        schema = node([schema], number)
    path = forged(tmp_path / "m", {"schema.json": json.dumps(schema)})
    with pytest.raises(ValueError, match="m cannot be read as a model: it has more than 100 lev"):
        load(path)
    path = forged(tmp_path / "m", {"schema.json": "[" * 200_000})
    with pytest.raises(ValueError, match="m cannot be read as a model: "):
        load(path)


@pytest.mark.parametrize("facts", [b"[" * 200_000, b'{"a":' * 200_000, b"3", b"[1]", b"{", b""])
def test_facts_that_are_not_a_table_are_refused(tmp_path, packed, facts):
    path = forged(tmp_path / "m", packed, facts)
    for reads in (load, describe):
        with pytest.raises(ValueError, match="m cannot be read as a model: "):
            reads(path)


def test_arrays_referenced_many_times_are_refused(tmp_path, packed, monkeypatch):
    schema = json.loads(packed["schema.json"])
    content = io.BytesIO()
    np.save(content, np.zeros(10_000))
    again = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode"}
    again |= {"type": "numpy", "file": "big.npy"}
    schema["content"]["content"]["more"] = node([again] * 500, -1)
    path = forged(
        tmp_path / "m",
        packed | {"schema.json": json.dumps(schema), "big.npy": content.getvalue()},
    )
    monkeypatch.setattr(archive, "ALWAYS", 0)
    monkeypatch.setattr(archive, "MOST_TIMES", 10)
    with pytest.raises(ValueError, match=r"its arrays would take \d+ bytes when read, more than"):
        load(path)


def test_arrays_shorter_than_their_header_says_are_refused(tmp_path, packed):
    name = next(name for name in packed if name.endswith(".npy"))
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    path = forged(tmp_path / "m", packed | {name: buffer.getvalue() + bytes(800)})
    with pytest.raises(ValueError, match=rf"its array '{name}' claims 8000000000000 bytes but has"):
        load(path)


def test_a_model_that_exceeds_memory_is_refused_before_reading(tmp_path, packed, monkeypatch):
    path = forged(tmp_path / "m", packed)
    size = path.stat().st_size
    monkeypatch.setattr(archive, "available_memory", lambda: size - 1)
    message = (
        rf"m claims {size} bytes, but only {size - 1} bytes of memory are available; free memory"
    )
    for reads in (load, describe):
        with pytest.raises(ValueError, match=message):
            reads(path)


def test_npz_blocks_are_checked_before_reading(tmp_path, monkeypatch):
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, X=np.zeros((100_000, 20)), y=np.arange(100_000) % 2)
    assert path.stat().st_size < 10**6
    monkeypatch.setattr(archive, "available_memory", lambda: 10**7)
    message = "could not be read as NPZ: array 'X' claims 16000128 bytes, but only 10000000 bytes"
    with pytest.raises(ValueError, match=message):
        fit_blocks(PCSDA(), path, classes=[0, 1])


@pytest.mark.parametrize("version", [(3, 0), (9, 9)])
def test_unknown_array_formats_are_refused(version):
    with pytest.raises(ValueError, match="version"):
        archive.claimed_bytes(io.BytesIO(np.lib.format.magic(*version) + bytes(100)))


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_data_with_a_malformed_header_are_refused(tmp_path, kind):
    """NumPy's header parser raised a TokenError."""
    path = tmp_path / f"rows.{kind}"
    buffer = io.BytesIO()
    np.save(buffer, X)
    content = buffer.getvalue().replace(b"'shape': (", b"'shape': [(")
    if kind == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("X.npy", content)
            target.writestr("y.npy", content)
    with pytest.raises(ValueError, match=rf"rows.{kind} could not be read"):
        fit_blocks(PCSDA(), path, **({"y": Y} if kind == "npy" else {}))
