"""Softmax models over 8x8 digits: ten rows of 65 weights, the last one for the constant 1."""

import json


def read(path):
    with open(path) as file:
        return json.load(file)


def write(path, weights):
    with open(path, "w") as file:
        json.dump(weights, file)


def mix(models, shares):
    """The sum of the models, each times its share."""
    return [
        [sum(share * weight for share, weight in zip(shares, weights)) for weights in zip(*rows)]
        for rows in zip(*models)
    ]


def rows(path):
    """Pixels scaled to 0..1 with a constant 1 appended, and the label, of each line."""
    with open(path) as file:
        for line in file:
            cells = [int(cell) for cell in line.split(",")]
            yield [pixel / 16 for pixel in cells[:-1]] + [1.0], cells[-1]


def predict(weights, pixels):
    scores = [sum(map(float.__mul__, row, pixels)) for row in weights]
    return scores.index(max(scores))


def accuracy(weights, path):
    results = [predict(weights, pixels) == label for pixels, label in rows(path)]
    return sum(results) / len(results)
