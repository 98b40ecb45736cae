"""Try the built wheel as a user would: `make release-check`.

Every tracked file of the package is in the wheel and nothing else, and in a fresh environment the
installed command fits, saves, loads and scores.
"""

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = """
import numpy, pcsda
from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True)
model = pcsda.PCSDA(random_state=0).fit(X[::2], y[::2] == 3)
pcsda.save(model, "three.pcsda")
same = pcsda.load("three.pcsda").log_likelihood_ratio(X[1::2])
assert numpy.array_equal(same, model.log_likelihood_ratio(X[1::2]))
numpy.save("rows.npy", X[1:20:2])
for name, rows in (("train.csv", slice(0, None, 2)), ("test.csv", slice(1, None, 2))):
    table = numpy.column_stack([X[rows], y[rows]]).astype(int)
    names = [*(f"pixel {i}" for i in range(64)), "digit"]
    numpy.savetxt(name, table, "%d", ",", header=",".join(names), comments="")
"""
# Commands in their order: each uses what those before it wrote.
COMMANDS = (
    "--version",
    "score three.pcsda rows.npy",
    "fit train.csv --label digit --positive 8 --max-false-alarms 0.02 -o eight.pcsda",
    "inspect eight.pcsda",
    "score eight.pcsda test.csv -o scores.csv",
    "rank eight.pcsda test.csv --top 3",
    "count eight.pcsda test.csv",
    "evaluate eight.pcsda test.csv --label digit --resamples 20",
    "fit train.csv --label digit --positive all -o bank.pcsda",
    "identify bank.pcsda test.csv",
    "update bank.pcsda test.csv --label digit -o more.pcsda",
    "completion bash",
    "completion fish",
    "demo --help",
)


def main(folder: Path) -> None:
    """Compare the wheel in a folder with the tracked files, and try it."""
    (wheel,) = folder.glob("*.whl")
    listed = subprocess.run(
        ["git", "ls-files", "src/pcsda"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    tracked = {name.removeprefix("src/") for name in listed.stdout.split()}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if tracked != packed:
        lacks, odd = tracked - packed, packed - tracked
        raise SystemExit(f"the wheel lacks {lacks} and should not have {odd}")
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "venv", with_pip=True)
        bin_ = Path(place) / "venv" / "bin"
        quiet = ["--quiet", "--disable-pip-version-check"]
        run = dict(cwd=place, check=True)
        subprocess.run([bin_ / "pip", "install", *quiet, f"{wheel}[cli,skops]"], **run)
        subprocess.run([bin_ / "python", "-c", SMOKE], **run)
        silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for words in COMMANDS:
            done = subprocess.run([bin_ / "pcsda", *words.split()], cwd=place, **silent)
            if done.returncode:
                raise SystemExit(f"pcsda {words} left with {done.returncode}: {done.stderr}")
    print(f"{wheel.name}: {len(packed)} files, installed; {len(COMMANDS)} commands tried")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
