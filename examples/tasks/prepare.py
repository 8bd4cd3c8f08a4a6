#!/usr/bin/env python3
"""Make the data and the start models of the tasks beside this file from ../digits/digits.csv.

usage: prepare.py

What it writes is checked in; it is here so that anyone can make it again. Deterministic, one thread, standard
library alone.
"""

import json
import math
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLASSES = 10
SEED = 20


def rows():
    with open(HERE.parent / "digits" / "digits.csv") as file:
        lines = file.read().splitlines()
    random.Random(SEED).shuffle(lines)
    return lines


def parse(line):
    cells = [int(cell) for cell in line.split(",")]
    return [pixel / 16 for pixel in cells[:-1]] + [1.0], cells[-1]


def train(lines, epochs, rate, seed):
    """Weights of a softmax classifier, ten rows of 65, three decimals each."""
    shuffle = random.Random(seed).shuffle
    examples = [parse(line) for line in lines]
    weights = [[0.0] * 65 for _ in range(CLASSES)]
    for _ in range(epochs):
        shuffle(examples)
        for pixels, label in examples:
            scores = [sum(map(float.__mul__, row, pixels)) for row in weights]
            powers = [math.exp(score - max(scores)) for score in scores]
            total = sum(powers)
            for digit, row in enumerate(weights):
                step = rate * (powers[digit] / total - (digit == label))
                weights[digit] = [weight - step * pixel for weight, pixel in zip(row, pixels)]
    return [[round(weight, 3) for weight in row] for row in weights]


def write(path, text):
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_rows(path, lines):
    write(path, "\n".join(lines) + "\n")


def write_model(path, weights):
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in weights)
    write(path, f"[{text}]\n")


def main():
    lines = rows()
    learn, proxy, validation, test = lines[:600], lines[600:900], lines[900:1197], lines[1197:]

    write_rows("digits-soup/environment/data/proxy.csv", proxy)
    write_rows("digits-soup/assets/validation.csv", validation)
    write_rows("digits-soup/assets/test.csv", test)
    for number in range(8):
        sample = random.Random(number).sample(learn, 20)
        write_model(f"digits-soup/environment/ingredients/{number}.json", train(sample, 6, 0.3, number))

    write_rows("digits-direct/environment/data/train.csv", learn)
    write_rows("digits-direct/assets/validation.csv", validation[:200])
    write_rows("digits-direct/assets/test.csv", test[:400])
    write_model("digits-direct/environment/model.json", train(learn[:100], 1, 0.05, 0))


if __name__ == "__main__":
    main()
