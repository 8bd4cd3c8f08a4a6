#!/usr/bin/env python3
"""Train a softmax classifier on 8x8 digits, from the model that is there.

usage: train.py

Reads data/train.csv and model.json beside this file and writes model.json. Deterministic, standard library alone.
"""

import json
import math
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
EPOCHS = 1
RATE = 0.05
SEED = 8


def rows(path):
    for line in path.read_text().splitlines():
        cells = [int(cell) for cell in line.split(",")]
        yield [pixel / 16 for pixel in cells[:-1]] + [1.0], cells[-1]


def softmax(weights, pixels):
    scores = [sum(map(float.__mul__, row, pixels)) for row in weights]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def main():
    weights = json.loads((HERE / "model.json").read_text())
    examples = list(rows(HERE / "data" / "train.csv"))
    shuffle = random.Random(SEED).shuffle
    for _ in range(EPOCHS):
        shuffle(examples)
        for pixels, label in examples:
            for digit, share in enumerate(softmax(weights, pixels)):
                step = RATE * (share - (digit == label))
                weights[digit] = [weight - step * pixel for weight, pixel in zip(weights[digit], pixels)]
    (HERE / "model.json").write_text(json.dumps(weights) + "\n")


if __name__ == "__main__":
    main()
