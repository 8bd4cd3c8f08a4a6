#!/usr/bin/env python3
"""Train a softmax classifier on 8x8 digits with the standard library alone.

usage: train.py [CSV] [MODEL]

Deterministic: a fixed seed, a fixed split, one thread. Prints one line of JSON and writes the
weights to MODEL (default: model.json in the working directory).
"""

import csv
import json
import math
import os
import random
import sys
import time

CLASSES = 10
EPOCHS = 80
RATE = 0.02
DECAY = 1e-4
SEED = 8


def load(path):
    """Rows of 64 pixels scaled to 0..1 with a constant 1 appended, and their labels."""
    with open(path, newline="") as file:
        rows = [[int(cell) for cell in row] for row in csv.reader(file)]
    return [([pixel / 16 for pixel in row[:-1]] + [1.0], row[-1]) for row in rows]


def scores(weights, pixels):
    return [sum(map(float.__mul__, row, pixels)) for row in weights]


def softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    total = sum(powers)
    return [power / total for power in powers]


def train(rows, shuffle):
    weights = [[0.0] * len(rows[0][0]) for _ in range(CLASSES)]
    for _ in range(EPOCHS):
        shuffle(rows)
        for pixels, label in rows:
            for digit, share in enumerate(softmax(scores(weights, pixels))):
                step = RATE * (share - (digit == label))
                weights[digit] = [
                    weight - step * pixel - RATE * DECAY * weight
                    for weight, pixel in zip(weights[digit], pixels)
                ]
    return weights


def accuracy(weights, rows):
    right = 0
    for pixels, label in rows:
        values = scores(weights, pixels)
        right += values.index(max(values)) == label
    return right / len(rows)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "digits.csv")
    target = sys.argv[2] if len(sys.argv) > 2 else "model.json"
    started = time.monotonic()

    rows = load(source)
    order = random.Random(SEED)
    order.shuffle(rows)
    held_out = len(rows) // 5
    test, learn = rows[:held_out], rows[held_out:]
    weights = train(learn, order.shuffle)

    with open(target, "w") as file:
        json.dump(weights, file)
    print(
        json.dumps(
            {
                "accuracy": round(accuracy(weights, test), 4),
                "train": len(learn),
                "test": len(test),
                "seconds": round(time.monotonic() - started, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
