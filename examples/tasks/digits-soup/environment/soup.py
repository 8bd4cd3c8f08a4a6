#!/usr/bin/env python3
"""Mix the ingredients into soups.

usage: soup.py OUTPUT

Writes OUTPUT/soup-1, soup-2 and soup-3, each with a weights.json: the mean of the first one, two and three
ingredients.
"""

import sys
from pathlib import Path

import model

HERE = Path(__file__).resolve().parent
INGREDIENTS = [model.read(path) for path in sorted((HERE / "ingredients").glob("*.json"))]


def main():
    output = Path(sys.argv[1])
    for count in (1, 2, 3):
        soup = model.mix(INGREDIENTS[:count], [1 / count] * count)
        directory = output / f"soup-{count}"
        directory.mkdir(parents=True)
        model.write(directory / "weights.json", soup)


if __name__ == "__main__":
    main()
