"""Ask a candidate for the digit of each row, one item a row.

usage: score.py ROWS

ROWS is a CSV file of 64 pixels and a label a line. The candidate runs elsewhere; it is at the other end of
descriptor 4, gets the pixels of one row at a time as a JSON line and answers with one. It never sees a label, and
nothing of its own is run or evaluated here. The verdict goes to descriptor 3, as one JSON document. Run with
`python3 -I`.
"""

import json
import os
import select
import sys
import time

VERDICT = 3
CANDIDATE = 4
# An answer is some forty bytes.
LONGEST = 256
SECONDS = 10.0


class Gone(Exception):
    """The candidate ended, or said more than an answer."""


class Late(Exception):
    """The candidate did not answer in time."""


def ask(question):
    """Sends a line and returns the next one. An answer that comes before its question is no answer."""
    deadline = time.monotonic() + SECONDS
    line = b""
    unsent = json.dumps(question).encode() + b"\n"
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        wanted = [CANDIDATE] if unsent else []
        readable, writable, _ = select.select([CANDIDATE], wanted, [], max(left, 0))
        if not readable and not writable:
            raise Late
        try:
            if readable:
                part = os.read(CANDIDATE, LONGEST + 1 - len(line))
                if not part or unsent or len(line) + len(part) > LONGEST:
                    raise Gone
                line += part
            elif writable:
                unsent = unsent[os.write(CANDIDATE, unsent) :]
        except OSError as error:
            raise Gone from error
    return line


def answer(line, name):
    """The digit, or None if the line is no answer to this question."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"id", "digit"} or value["id"] != name:
        return None
    digit = value["digit"]
    return digit if type(digit) is int and 0 <= digit <= 9 else None


def attempt(name, cells):
    """One attempt at a row, and whether the candidate can be asked again."""
    started = time.monotonic()
    alive, score = True, 0
    try:
        digit = answer(ask({"id": name, "pixels": cells[:-1]}), name)
        score = int(digit == cells[-1])
        status = "exec_failure" if digit is None else "ok" if score else "wrong"
    except Late:
        # A late answer would be taken for that of the next question.
        alive, status = False, "timeout"
    except Gone:
        alive, status = False, "exec_failure"
    wall = int((time.monotonic() - started) * 1000)
    return {"status": status, "score": str(score), "wall_ms": wall}, alive


def main():
    with open(sys.argv[1]) as file:
        examples = [[int(cell) for cell in line.split(",")] for line in file]
    os.set_blocking(CANDIDATE, False)
    items, alive = [], True
    for index, cells in enumerate(examples):
        name = f"row-{index}"
        if alive:
            result, alive = attempt(name, cells)
        else:
            result = {"status": "exec_failure", "score": "0", "wall_ms": 0}
        items.append({"id": name, "attempts": [result]})
    with os.fdopen(VERDICT, "w") as verdict:
        json.dump({"items": items}, verdict)


if __name__ == "__main__":
    main()
