#!/usr/bin/env python3
"""A file system that stops responding in the middle of a file, and a command beside it.

    zoo/hung_mount.py DIR BYTES COMMAND...

In its own mount namespace, DIR shows job.log, other.log and third.log, one MiB of lines each. It answers reads below BYTES and
never any others, like a server that disappears while its file is read. Lookups of names that begin with "gone" never return.
Exits with the command's exit status, or 69 if this machine does not allow the mount. Needs root and Linux's FUSE (the protocol
of include/uapi/linux/fuse.h, 7.23 and later).
"""

import ctypes
import os
import struct
import subprocess
import sys
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NAMES, PRIVATE = 0x20000, 0x4000 | 0x40000
FILES = {2: b"job.log", 3: b"other.log", 4: b"third.log"}
CONTENT = b"".join(b"line %07d of the log of this job\n" % n for n in range(1 << 15))[: 1 << 20]
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = (
    1, 2, 3, 14, 15, 18, 25, 26, 27, 28, 29, 42,
)  # fmt: skip
NO_ENTRY, NO_SYSTEM = 2, 38


def attributes(node):
    size, mode = (0, 0o40755) if node == 1 else (len(CONTENT), 0o100644)
    times = (1_795_000_000,) * 3
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, *times, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def listing():
    entries = b""
    for node, name in FILES.items():
        entry = struct.pack("<QQII", node, node - 1, len(name), 8) + name
        entries += entry + b"\0" * (-len(entry) % 8)
    return entries


def serve(fuse, answered):
    while True:
        try:
            request = os.read(fuse, 1 << 18)
        except OSError:
            return
        opcode, unique, node = struct.unpack_from("<IQQ", request, 4)
        body, error, answer = request[40:], 0, b""
        if opcode in (FORGET, BATCH_FORGET):
            continue
        if opcode == INIT:
            major, minor, ahead = struct.unpack_from("<III", body)
            answer = struct.pack("<IIIIHHIIHHI7I", major, min(minor, 31), ahead, 0, 12, 9, 1 << 16, 1, 0, 0, 0, *[0] * 7)
        elif opcode == LOOKUP:
            if body.startswith(b"gone"):
                continue
            found = [node for node, name in FILES.items() if name == body.rstrip(b"\0")]
            if found:
                answer = struct.pack("<QQQQII", found[0], 0, 60, 60, 0, 0) + attributes(found[0])
            else:
                error = NO_ENTRY
        elif opcode == GETATTR:
            answer = struct.pack("<QII", 60, 0, 0) + attributes(node)
        elif opcode in (OPEN, OPENDIR):
            # 1: no cache and no readahead, so that reads arrive as requested.
            answer = struct.pack("<QII", node, 1 if opcode == OPEN else 0, 0)
        elif opcode in (READ, READDIR):
            _, start, size = struct.unpack_from("<QQI", body)
            if opcode == READDIR:
                answer = listing() if start == 0 else b""
            elif start >= answered and start < len(CONTENT):
                continue
            else:
                answer = CONTENT[start : start + size]
        elif opcode not in (RELEASE, RELEASEDIR, FLUSH):
            error = NO_SYSTEM
        os.write(fuse, struct.pack("<IiQ", 16 + len(answer), -error, unique) + answer)


def main():
    folder, answered, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    try:
        fuse = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        sys.exit(not_here(error))
    if LIBC.unshare(NEW_NAMES) or LIBC.mount(b"none", b"/", None, PRIVATE, None):
        sys.exit(not_here(os.strerror(ctypes.get_errno())))
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if LIBC.mount(b"hung", folder.encode(), b"fuse", 0, options):
        sys.exit(not_here(os.strerror(ctypes.get_errno())))
    threading.Thread(target=serve, args=(fuse, answered), daemon=True).start()
    status = subprocess.run(command, check=False).returncode
    # Processes that still wait there are released when we exit.
    os._exit(status)


def not_here(why):
    print(f"zoo/hung_mount.py: {why}", file=sys.stderr)
    return 69


main()
