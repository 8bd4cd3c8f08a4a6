"""Is a checkpoint a soup? Exit status 0 says yes.

usage: check.py FROZEN CANDIDATE

A soup is an affine combination of the ingredients in FROZEN. That is computed from the weights themselves, never
from what the candidate says about them. Run with `python3 -I`.
"""

import json
import math
import os
import sys

LONGEST = 64 << 10
# Weights are written with all digits of a double; a soup misses its hull by rounding alone.
TOLERANCE = 1e-6


def read(path):
    with open(path, "rb") as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError("too long")
    rows = json.loads(text)
    if not isinstance(rows, list) or len(rows) != 10:
        raise ValueError("not ten rows")
    if any(not isinstance(row, list) or len(row) != 65 for row in rows):
        raise ValueError("not 65 columns")
    cells = [cell for row in rows for cell in row]
    if any(type(cell) not in (int, float) or not math.isfinite(cell) for cell in cells):
        raise ValueError("not finite numbers")
    return [float(cell) for cell in cells]


def dot(one, other):
    return sum(map(float.__mul__, one, other))


def solve(matrix, right):
    """Gaussian elimination with pivots."""
    rows = [row + [value] for row, value in zip(matrix, right)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [cell - factor * base for cell, base in zip(rows[row], rows[column])]
    return [rows[index][size] / rows[index][index] for index in range(size)]


def distance(point, ingredients):
    """From a point to the affine hull of the ingredients, the greatest of any weight."""
    origin = ingredients[0]
    edges = [[a - b for a, b in zip(ingredient, origin)] for ingredient in ingredients[1:]]
    offset = [a - b for a, b in zip(point, origin)]
    shares = solve([[dot(a, b) for b in edges] for a in edges], [dot(edge, offset) for edge in edges])
    nearest = [sum(share * edge[index] for share, edge in zip(shares, edges)) for index in range(len(offset))]
    return max(abs(a - b) for a, b in zip(offset, nearest))


def main():
    frozen, candidate = sys.argv[1:]
    directory = os.path.join(frozen, "ingredients")
    ingredients = [read(os.path.join(directory, name)) for name in sorted(os.listdir(directory))]
    try:
        point = read(os.path.join(candidate, "weights.json"))
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"weights.json: {type(error).__name__}")
    # Numbers so large that the distance is no number are no mixture either.
    if not distance(point, ingredients) <= TOLERANCE:
        sys.exit("not an affine combination of the ingredients")


if __name__ == "__main__":
    main()
