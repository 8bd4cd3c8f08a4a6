"""Looks for everything that a graded program must not find, and prints what is there as one line of JSON.

usage: look.py [port=N] [PLACE]

Without a PLACE it looks at the whole file system, but for the host's programs, and at all processes. That it does
only in a sandbox: no process outside is any of its business, and to attach to one would stop it.
"""


def look(place, port):
    import ctypes
    import json
    import os
    import socket
    import subprocess
    import sys

    everywhere = place is None
    if everywhere and socket.gethostname() not in ("research", "candidate", "scorer"):
        sys.exit("look.py: name a place, outside of a sandbox")

    libc = ctypes.CDLL(None)
    # Spelt apart, so that this text itself is none.
    needle = b"CANA" + b"RY-"

    def names(text):
        """What follows each needle, up to the first character that is no letter."""
        found = set()
        for piece in text.split(needle)[1:]:
            word = piece[:40].split(b"-")[0]
            found.add(word.decode("ascii", "replace"))
        return found

    def content(path, most=1 << 20):
        try:
            # Neither a FIFO nor a device is waited for.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return os.read(descriptor, most)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    canaries, files = names(content("/proc/self/environ")), 0
    for root, folders, entries in os.walk(place or "/"):
        folders[:] = [name for name in folders if os.path.join(root, name) not in ("/proc", "/sys", "/usr")]
        for name in entries:
            path = os.path.join(root, name)
            canaries |= names(os.fsencode(path) + b"\n" + content(path))
            files += 1
    # A process of its own shows that what others hold in their environment would be found.
    child = subprocess.Popen(["sleep", "60"], env={"OWN": needle.decode() + "own-"}) if everywhere else None
    pids = [name for name in os.listdir("/proc") if name.isdigit()] if everywhere else []
    memory = []
    for pid in pids:
        folder = f"/proc/{pid}"
        try:
            tasks = [f"{folder}/task/{task}" for task in os.listdir(f"{folder}/task")]
        except OSError:
            tasks = []
        for part in [folder, *tasks]:
            for name in ("environ", "cmdline", "mountinfo"):
                canaries |= names(content(f"{part}/{name}"))
        if int(pid) not in (os.getpid(), child.pid):
            for way in (f"{folder}/mem", f"{folder}/root/etc", f"{folder}/cwd/."):
                try:
                    os.close(os.open(way, os.O_RDONLY))
                    memory.append(way)
                except OSError:
                    pass
            # Seizing stops nobody (ptrace(2)).
            if libc.ptrace(0x4206, int(pid), None, None) == 0:
                libc.ptrace(17, int(pid), None, None)
                memory.append(f"ptrace {pid}")

    if child:
        child.kill()
        child.wait()

    def reached(family, kind, address):
        try:
            with socket.socket(family, kind) as there:
                there.settimeout(2)
                there.connect(address)
                return True
        except (OSError, AttributeError):
            return False

    reach = {}
    reach["tcp"] = reached(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port)))
    reach["abstract"] = reached(socket.AF_UNIX, socket.SOCK_STREAM, f"\0airlock-look-{port}")
    reach["address"] = reached(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80))
    reach["vsock"] = reached(socket.AF_VSOCK, socket.SOCK_STREAM, (2, 22))
    try:
        reach["name"] = bool(socket.getaddrinfo("example.com", 80))
    except OSError:
        reach["name"] = False
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    maps = {line.split(None, 5)[5] for line in open("/proc/self/maps").read().splitlines() if "/" in line}
    print(
        "look "
        + json.dumps(
            {
                "canaries": sorted(canaries),
                "files": files,
                "pids": len(pids),
                "memory": memory,
                "reach": [way for way, done in reach.items() if done],
                "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
                "confined": [status["NoNewPrivs"], status["Seccomp"]],
                "foreign": sorted(path for path in maps if not path.startswith(("/usr/", "/lib"))),
                "path": [place for place in sys.path if not place.startswith("/usr/")],
                "isolated": sys.flags.isolated,
                "environment": sorted(os.environ),
                "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
            }
        ),
        flush=True,
    )


import sys as _sys

_words = _sys.argv[1:]
_port = ([word.removeprefix("port=") for word in _words if word.startswith("port=")] or ["0"])[0]
_place = ([word for word in _words if not word.startswith("port=") and word != "everywhere"] or [None])[0]
look(_place, _port)
