#!/usr/bin/env python3
"""Mix the ingredients into soups, greedily.

usage: soup.py OUTPUT

Adds the ingredient that makes the soup best on the proxy rows, twelve times, and writes the soup after every fourth:
OUTPUT/soup-N with a weights.json.
"""

import sys
from pathlib import Path

import model

HERE = Path(__file__).resolve().parent
PROXY = HERE / "data" / "proxy.csv"
INGREDIENTS = [model.read(path) for path in sorted((HERE / "ingredients").glob("*.json"))]
ROUNDS = 12


def soup(counts):
    return model.mix(INGREDIENTS, [count / sum(counts) for count in counts])


def more(counts, index):
    return [count + (place == index) for place, count in enumerate(counts)]


def main():
    output = Path(sys.argv[1])
    counts = [0] * len(INGREDIENTS)
    for number in range(1, ROUNDS + 1):
        options = [more(counts, index) for index in range(len(counts))]
        counts = max(options, key=lambda option: model.accuracy(soup(option), PROXY))
        if number % 4 == 0:
            directory = output / f"soup-{number}"
            directory.mkdir(parents=True)
            model.write(directory / "weights.json", soup(counts))


if __name__ == "__main__":
    main()
