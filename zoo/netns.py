#!/usr/bin/env python3
"""Nodes on one machine: one network namespace each, with an interface `eth0` (TAP), and a switch in user space between them,
which can lose or delay a node's packets on request. Needs root and /dev/net/tun, but neither iproute2 nor kernel modules.

    zoo/netns.py N CONTROL     prints a line of JSON: {"pid": P, "nodes": ["/proc/P/fd/7", …]}; ends with its stdin

CONTROL is the path of a datagram socket: {"node": 2, "lose": 1.0} or {"node": 2, "bytes_per_s": 3000000}.
Node n has the address 10.77.0.(10+n), and an interface `mgmt0`, 192.0.2.(10+n), which leads nowhere.
"""

import ctypes
import fcntl
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
MTU = 9000


def libc():
    return ctypes.CDLL(None, use_errno=True)


def must(said, what):
    if said:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def enter(node, name=None):
    """Moves this process into a node's network and sets its host name."""
    file = os.open(node, os.O_RDONLY)
    must(libc().setns(file, CLONE_NEWNET), "setns")
    os.close(file)
    if name:
        must(libc().unshare(CLONE_NEWUTS), "unshare")
        socket.sethostname(name)


def address(n):
    return f"10.77.0.{10 + n}"


def interface(name, ip):
    """Creates a TAP interface, up and with an address; returns its file."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH14x", name.encode(), 0x0002 | 0x1000))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, text in ((0x8916, ip), (0x891C, "255.255.255.0")):
            where = struct.pack("16sH2s4s8x", name.encode(), socket.AF_INET, b"\0\0", socket.inet_aton(text))
            fcntl.ioctl(control, request, where)
        fcntl.ioctl(control, 0x8922, struct.pack("16si12x", name.encode(), MTU))
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name.encode(), 0x1 | 0x40))
    return device


def make_node(n):
    """(file of the interface, file of the namespace, a file that must stay open)"""
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            must(libc().unshare(CLONE_NEWNET), "unshare")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))
            files = [interface("eth0", address(n)), os.open("/proc/self/ns/net", os.O_RDONLY), interface("mgmt0", f"192.0.2.{10 + n}")]
            socket.send_fds(there, [b"ok"], files)
        except OSError as error:
            there.send(str(error).encode())
        os._exit(0)
    said, files, _, _ = socket.recv_fds(here, 1024, 3)
    os.waitpid(pid, 0)
    here.close()
    there.close()
    if said != b"ok":
        raise OSError(said.decode())
    return files


class Switch:
    def __init__(self, devices, control):
        self.devices = devices
        self.control = control
        self.known = {}
        self.lose = [0.0] * len(devices)
        self.rate = [0] * len(devices)
        # For each slow node and direction: when the line is free again, and the waiting packets.
        self.free_at = {}
        self.waiting = {}

    def run(self):
        poll = select.epoll()
        by_file = {device: n for n, device in enumerate(self.devices)}
        for device in self.devices:
            poll.register(device, select.EPOLLIN)
        poll.register(self.control, select.EPOLLIN)
        poll.register(0, select.EPOLLIN)
        while True:
            for file, _ in poll.poll(0.002 if any(self.waiting.values()) else 1.0):
                if file == 0:
                    if not os.read(0, 4096):
                        return
                elif file == self.control.fileno():
                    self.obey(json.loads(self.control.recv(4096)))
                else:
                    self.read(by_file[file])
            self.release()

    def obey(self, order):
        node = order["node"]
        self.lose[node] = order.get("lose", self.lose[node])
        self.rate[node] = order.get("bytes_per_s", self.rate[node])

    def read(self, source):
        for _ in range(64):
            try:
                frame = os.read(self.devices[source], MTU + 64)
            except OSError:
                return
            self.known[frame[6:12]] = source
            to = self.known.get(frame[0:6])
            targets = [to] if to is not None and not frame[0] & 1 else range(len(self.devices))
            for target in targets:
                if target != source:
                    self.pass_on(source, target, frame)

    def pass_on(self, source, target, frame):
        for node in (source, target):
            if self.lose[node] and random.random() < self.lose[node]:
                return
        for node, direction in ((source, "up"), (target, "down")):
            if self.rate[node]:
                line = (node, direction)
                free = max(time.monotonic(), self.free_at.get(line, 0.0))
                if free - time.monotonic() > 0.3:
                    return  # A slow line has a short queue; packets that do not fit are lost.
                self.free_at[line] = free + len(frame) / self.rate[node]
                self.waiting.setdefault(line, deque()).append((self.free_at[line], target, frame))
                return
        self.write(target, frame)

    def release(self):
        now = time.monotonic()
        for queue in self.waiting.values():
            while queue and queue[0][0] <= now:
                _, target, frame = queue.popleft()
                self.write(target, frame)

    def write(self, target, frame):
        try:
            os.write(self.devices[target], frame)
        except OSError:
            pass  # Its interface is down or its queue is full: the packet is lost.


def possible():
    """None, or why nodes cannot be created here."""
    try:
        for file in make_node(0):
            os.close(file)
        return None
    except OSError as error:
        return f"no network namespaces with TAP here: {error}"


def main():
    n_nodes, path = int(sys.argv[1]), sys.argv[2]
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    control.bind(path)
    nodes = [make_node(n) for n in range(n_nodes)]
    print(json.dumps({"pid": os.getpid(), "nodes": [f"/proc/{os.getpid()}/fd/{files[1]}" for files in nodes]}), flush=True)
    Switch([files[0] for files in nodes], control).run()


if __name__ == "__main__":
    main()
