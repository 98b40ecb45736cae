"""Try attacks for some minutes, a row for each, and count how they went.

make fuzz FUZZ_MINUTES=60
python -m fuzz --minutes 2 --rows rows.jsonl            with tests on the path
python -m fuzz --only "mutated model files" --seed 1234 --count 1       one attack again
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

from . import attacks, clusters
from .attacks import ATTACKS, BreachError
from .page import counts, to_text


def planned(only, seed):
    """Yield names and seeds of attacks endlessly, in rounds over all attacks."""
    number = {name: seed for name in ATTACKS}
    while True:
        for name, (_, often) in ATTACKS.items():
            for _ in range(often if only is None else only == name):
                yield name, number[name]
                number[name] += 1


def tried(name, seed):
    """Try one attack in a folder of its own."""
    begin, note = time.monotonic(), ""
    with tempfile.TemporaryDirectory(dir=os.environ["PCSDA_FUZZ_FOLDER"]) as folder:
        try:
            outcome = ATTACKS[name][0](seed, Path(folder))
        except BreachError as error:
            outcome, note = "breach", str(error)
        except Exception as error:
            outcome, note = "breach", f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - begin, 2)
    return {"attack": name, "seed": seed, "outcome": outcome, "note": note, "seconds": seconds}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first attack of each kind")
    parser.add_argument("--count", type=int, help="attacks in all; default: until time is up")
    parser.add_argument("--only", choices=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--rows", type=Path, help="append a line of JSON for every attack")
    args = parser.parse_args(arguments)
    if args.rows is not None:
        args.rows.parent.mkdir(parents=True, exist_ok=True)
    begin, rows = time.monotonic(), []
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PCSDA_FUZZ_FOLDER"] = folder
        try:
            for name, seed in planned(args.only, args.seed):
                late = time.monotonic() - begin > 60 * args.minutes
                if late or len(rows) == args.count:
                    break
                rows.append(tried(name, seed))
                if rows[-1]["outcome"] == "breach":
                    print(f"BREACH {name}, seed {seed}: {rows[-1]['note']}", flush=True)
                if args.rows is not None:
                    with open(args.rows, "a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
        except KeyboardInterrupt:
            print("stopped")
        finally:
            with suppress(Exception):
                clusters.stop()
            attacks.file_of.cache_clear()
            attacks.stopped.cache_clear()
    print(to_text(counts(rows)))
    print(f"{len(rows)} attacks in {(time.monotonic() - begin) / 60:.1f} minutes")
    return Counter(row["outcome"] for row in rows)["breach"] > 0


if __name__ == "__main__":
    sys.exit(main())
