"""Altered files: models, checkpoints and data."""

import hashlib
import io
import json
import zipfile

import numpy as np

SCRAPS = [
    None,
    True,
    -1,
    0,
    2**40,
    1e308,
    "",
    "x",
    [],
    {},
    [[]],
    {"array": 0},
    "os.system",
    [0] * 9,
]


def spoiled(data, rng):
    """Return bytes of which a few were changed, cut, doubled or moved."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not data:
            break
        way, place = rng.integers(6), int(rng.integers(len(data)))
        size = int(rng.integers(1, 64))
        if way == 0:
            data[place] ^= 1 << int(rng.integers(8))
        elif way == 1:
            del data[place:]
        elif way == 2:
            del data[place : place + size]
        elif way == 3:
            data[place:place] = data[place : place + size]
        elif way == 4:
            data[place : place + size] = rng.bytes(size)
        else:
            other = int(rng.integers(len(data)))
            data[place : place + size] = data[other : other + size]
    return bytes(data)


def places(value, path=()):
    """Yield all places in a tree of tables and lists."""
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, part in items:
        yield (*path, key)
        yield from places(part, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def altered_tree(tree, rng):
    """Return a tree with one place dropped, or replaced by a scrap or by another place."""
    for _ in range(int(rng.integers(1, 3))):
        found = list(places(tree))
        if not found:
            return tree
        *path, key = found[int(rng.integers(len(found)))]
        parent, way = at(tree, path), rng.integers(3)
        if way == 0:
            del parent[key]
        elif way == 1:
            parent[key] = SCRAPS[int(rng.integers(len(SCRAPS)))]
        else:
            parent[key] = json.loads(json.dumps(at(tree, found[int(rng.integers(len(found)))])))
    return tree


def altered_archive(data, tree_name, rng, read=json.loads, write=json.dumps):
    """Return an archive with an altered tree or entry, and correct checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        entries = {entry.filename: source.read(entry) for entry in source.infolist()}
    names = list(entries)
    name = tree_name if rng.random() < 0.7 else names[int(rng.integers(len(names)))]
    if name == tree_name:
        entries[name] = write(altered_tree(read(entries[name]), rng))
    elif rng.random() < 0.2:
        del entries[name]
    else:
        entries[name] = spoiled(entries[name], rng)
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as target:
        for name, content in entries.items():
            target.writestr(name, content)
    return result.getvalue()


def altered_model(data, rng):
    """Return a model file that was corrupted, or forged with a correct checksum."""
    if rng.random() < 0.3:
        return spoiled(data, rng)
    head, facts, payload = data.split(b"\n", 2)
    if rng.random() < 0.2:
        facts = spoiled(facts, rng)
    else:
        payload = altered_archive(payload, "schema.json", rng)
    body = facts + b"\n" + payload
    kind = head.split()[1] if rng.random() < 0.9 else b"1"
    return b"pcsda-model " + kind + b" " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _state_of(content):
    return json.loads(str(np.load(io.BytesIO(content))))


def _content_of(state):
    buffer = io.BytesIO()
    np.save(buffer, np.array(json.dumps(state)))
    return buffer.getvalue()


def altered_checkpoint(data, rng):
    """Return a checkpoint that was corrupted, or whose state was altered."""
    if rng.random() < 0.3:
        return spoiled(data, rng)
    return altered_archive(data, "state.npy", rng, _state_of, _content_of)
