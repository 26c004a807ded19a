#!/usr/bin/env python3
"""A stand-in for the Kubernetes API: lists pods and runs exec on this machine over a WebSocket.

    zoo/kube_api.py FOLDER PROGRAM     writes FOLDER/kubeconfig, then serves on loopback until killed
    KUBECONFIG=FOLDER/kubeconfig ringleader check --kube app=x     (a build with --features kube)

Pods: well (runs the command here, PROGRAM as `ringleader`), bare (lacks this program; runs others, with FOLDER/bare as its
home), slow (sleeps), forbidden (exec is refused), done (has ended, so nothing asks it). Labels are ignored, except for
`app=none`, which selects nothing.

kubectl works with it as far as `cordon` and `delete pod` go: nodes have any name; `locked-N` may not be patched, `gone-N` does not
exist, `slow-N` answers after a minute. Each node has one pod, `train-NODE`, which a field selector finds. Writes are recorded in
FOLDER/calls, one line each. Protocol: the list and exec calls of core/v1, and v4.channel.k8s.io (a channel byte before
each message: 0 input, 1 output, 2 errors, 3 the status as JSON; the protocol cannot signal the end of the input).
"""

import base64
import hashlib
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

FOLDER, PROGRAM = sys.argv[1], sys.argv[2]
PODS = {"well": "Running", "bare": "Running", "slow": "Running", "forbidden": "Running", "done": "Succeeded"}

# What kubectl asks first: which kinds there are.
RESOURCES = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "patch"]},
            {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list", "delete"]},
        ],
    },
}


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = urllib.parse.parse_qs(url.query)
        parts = url.path.strip("/").split("/")
        if url.path in RESOURCES:
            self.answer(200, RESOURCES[url.path])
        elif parts[:3] == ["api", "v1", "nodes"] and len(parts) == 4:
            self.node(parts[3])
        elif "fieldSelector" in query:
            node = query["fieldSelector"][0].split("=")[1]
            items = [pod_of(node, parts[3])]
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif parts[:3] != ["api", "v1", "namespaces"] or parts[4:5] != ["pods"]:
            self.answer(404, failure(404, "NotFound", "no such thing"))
        elif len(parts) == 5:
            chosen = {} if query.get("labelSelector") == ["app=none"] else PODS
            items = [
                {"metadata": {"name": name, "namespace": parts[3]}, "status": {"phase": phase}}
                for name, phase in chosen.items()
            ]
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif parts[6:] == ["exec"]:
            self.exec(parts[5], query.get("command", []), query.get("stdin") == ["true"])

    def node(self, name):
        if name.startswith("slow"):
            time.sleep(60)
        if name.startswith("gone"):
            self.answer(404, failure(404, "NotFound", f'nodes "{name}" not found'))
        else:
            self.answer(200, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": {}, "status": {}})

    def do_PATCH(self):
        parts = urllib.parse.urlparse(self.path).path.strip("/").split("/")
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if parts[3].startswith("locked"):
            message = f'nodes "{parts[3]}" is forbidden: User "u" cannot patch resource "nodes" in API group "" at the cluster scope'
            self.answer(403, failure(403, "Forbidden", message))
            return
        note(f"PATCH {parts[3]} {body}")
        self.node(parts[3])

    def do_DELETE(self):
        url = urllib.parse.urlparse(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        parts = url.path.strip("/").split("/")
        note(f"DELETE {parts[3]}/{parts[5]} {body}")
        self.answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def exec(self, pod, command, has_input):
        if pod == "forbidden":
            message = 'pods "forbidden" is forbidden: User "u" cannot create resource "pods/exec"'
            self.answer(403, failure(403, "Forbidden", message))
            return
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.wfile.flush()
        if pod == "slow":
            time.sleep(60)
        if not command or (pod == "bare" and command[0] == "ringleader"):
            message = f'exec: "{command[0]}": executable file not found in $PATH: unknown'
            self.send(3, json.dumps(failure(500, "InternalError", message)).encode())
        else:
            home = os.path.join(FOLDER, pod)
            os.makedirs(home, exist_ok=True)
            run = subprocess.Popen(
                [PROGRAM if word == "ringleader" and n == 0 else word for n, word in enumerate(command)],
                env=dict(os.environ, HOME=home),
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            if has_input:
                threading.Thread(target=self.feed, args=(run.stdin,), daemon=True).start()
            errors = []
            reader = threading.Thread(target=lambda: errors.append(run.stderr.read()))
            reader.start()
            # Unbuffered.
            while data := run.stdout.read1(65536):
                self.send(1, data)
            reader.join()
            self.send(2, errors[0])
            run.wait()
            status = {"metadata": {}, "status": "Success"}
            if run.returncode:
                status = failure(500, "NonZeroExitCode", f"exit code {run.returncode}")
                status["details"] = {"causes": [{"reason": "ExitCode", "message": str(run.returncode)}]}
            self.send(3, json.dumps(status).encode())
        self.frame(8, struct.pack(">H", 1000))
        self.close_connection = True

    def feed(self, pipe):
        """Copies channel 0 to a process until either ends."""
        try:
            while True:
                first, second = self.rfile.read(2)
                size = second & 0x7F
                if size > 125:
                    size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
                # Clients mask their messages (RFC 6455, 5.3).
                mask = self.rfile.read(4)
                data = self.rfile.read(size)
                mask = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
                data = (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")
                if first & 0x0F == 8:
                    break
                if data[:1] == b"\0":
                    pipe.write(data[1:])
                    pipe.flush()
        except (OSError, ValueError):
            pass

    def send(self, channel, data):
        # In pieces, like the kubelet.
        for start in range(0, len(data), 4096):
            self.frame(2, bytes([channel]) + data[start : start + 4096])

    def frame(self, opcode, data):
        size = len(data)
        head = bytes([0x80 | opcode]) + (bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size))
        self.wfile.write(head + data)
        self.wfile.flush()


def pod_of(node, namespace):
    metadata = {"name": f"train-{node}", "namespace": namespace}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def note(line):
    with open(os.path.join(FOLDER, "calls"), "a", encoding="utf-8") as file:
        file.write(line + "\n")


def failure(code, reason, message):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
server.daemon_threads = True
config = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "zoo",
    "clusters": [{"name": "zoo", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
    "users": [{"name": "zoo", "user": {}}],
    "contexts": [{"name": "zoo", "context": {"cluster": "zoo", "user": "zoo", "namespace": "default"}}],
}
path = os.path.join(FOLDER, "kubeconfig")
with open(path + ".new", "w", encoding="utf-8") as file:
    json.dump(config, file)
os.rename(path + ".new", path)
server.serve_forever()
