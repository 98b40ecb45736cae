"""Options of `pcsda search`, kept separate from its code so that help appears immediately."""

# ruff: noqa: D405, D406, D407 (the docstring is the help)

from __future__ import annotations

from argparse import ArgumentParser

from .options import names, port_number


def search(parser: ArgumentParser) -> None:
    """Find more like these, on a page in the browser.

    examples:
      pictures in a folder, with a table of their embeddings and file names
        pcsda search photos.parquet --id file --media photos --examples cat1.jpg,cat2.jpg
      texts in a column
        pcsda search papers.parquet --id doi --media abstract
      rows of a table
        pcsda search parts.csv --id part

    Every answer is stored at once in GALLERY.labels.db; the same command resumes from there. The
    page is served on this machine only and needs no network; it exports labels, model and report.
    """
    add = parser.add_argument
    add("gallery", help="table with a row of features for each item: .csv, .parquet, .npy, .npz")
    media = "folder of pictures or sounds named by --id, or column of file names or texts"
    add("--media", metavar="COLUMN|FOLDER", help=media)
    add("--id", metavar="COLUMN", help="column that names the rows (default: row numbers)")
    examples = "ids of examples to start from, separated by commas"
    add("--examples", type=names, action="extend", default=[], metavar="A,B", help=examples)
    add("--features", type=names, action="extend", default=[], metavar="A,B")
    add("--ignore", type=names, action="extend", default=[], metavar="A,B")
    add("--store", metavar="FILE", help="file for the labels (default: GALLERY.labels.db)")
    carry = "keep using the labels after the gallery has changed, for ids that are still in it"
    add("--carry-over", action="store_true", help=carry)
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    add("--port", type=port_number, default=0, help="port to listen on (default: a free one)")
    add("--no-browser", action="store_true", help="print the address but do not open a browser")
