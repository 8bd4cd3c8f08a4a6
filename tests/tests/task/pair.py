"""Run a scorer and a program that it asks, joined by a socket, and print the scorer's verdict.

usage: pair.py PROGRAM SCORER ROWS

Both get the socket as descriptor 4, the scorer a pipe for its verdict as descriptor 3.
"""

import os
import shutil
import socket
import subprocess
import sys


def start(descriptors, command):
    def place():
        # First out of the way of the numbers that are taken below.
        moved = {number: os.dup2(descriptor, 100 + number) for number, descriptor in descriptors.items()}
        for number, descriptor in moved.items():
            os.dup2(descriptor, number)

    return subprocess.Popen(command, preexec_fn=place, close_fds=False)


def main():
    program, scorer, rows = sys.argv[1:]
    asks, answers = socket.socketpair()
    verdict, written = os.pipe()
    candidate = start({4: answers.fileno()}, ["python3", program])
    grading = start({3: written, 4: asks.fileno()}, ["python3", "-I", scorer, rows])
    for end in (asks, answers):
        end.close()
    os.close(written)
    with os.fdopen(verdict) as text:
        shutil.copyfileobj(text, sys.stdout)
    candidate.kill()
    candidate.wait()
    sys.exit(grading.wait())


if __name__ == "__main__":
    main()
