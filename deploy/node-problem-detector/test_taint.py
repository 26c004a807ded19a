#!/usr/bin/env python3
"""Evaluates taint-policy.yaml over pods by an implementation of CEL, and runs taint.sh with kubectl over nodes that this program serves.

    pip install cel-python==0.5.0 pyyaml
    deploy/node-problem-detector/test_taint.py [KUBECTL]

Listens on this machine only. Without kubectl the second half is left out, and said so.
"""

import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import celpy
import yaml

HERE = pathlib.Path(__file__).resolve().parent
GPU = {"resources": {"limits": {"cpu": "4", "nvidia.com/gpu": "8"}}}
MIG = {"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}
CPU = {"resources": {"limits": {"cpu": "4"}}}
OURS = {"key": "ringleader/unhealthy", "operator": "Exists"}
ALL = {"operator": "Exists"}
# Pod, and whether it may be made.
PODS = [
    ("GPUs, no toleration", {"containers": [GPU]}, True),
    ("GPUs, another toleration", {"containers": [GPU], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, True),
    ("GPUs, the taint by its name", {"containers": [GPU], "tolerations": [OURS]}, False),
    ("GPUs, the taint by its value", {"containers": [GPU], "tolerations": [{"key": OURS["key"], "operator": "Equal", "value": "true"}]}, False),
    ("GPUs, another value", {"containers": [GPU], "tolerations": [{"key": OURS["key"], "value": "false"}]}, True),
    ("GPUs, every taint", {"containers": [GPU], "tolerations": [ALL]}, False),
    ("GPUs, every taint by an empty key", {"containers": [GPU], "tolerations": [{"key": "", "operator": "Exists"}]}, False),
    ("GPUs, every taint without scheduling", {"containers": [GPU], "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, False),
    ("GPUs, every taint that evicts", {"containers": [GPU], "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, True),
    ("a part of a GPU, every taint", {"containers": [MIG], "tolerations": [ALL]}, False),
    ("GPUs in the second container", {"containers": [CPU, GPU], "tolerations": [ALL]}, False),
    ("GPUs before the start", {"containers": [{}], "initContainers": [GPU], "tolerations": [ALL]}, False),
    ("no GPU, every taint", {"containers": [CPU, {}], "initContainers": [{}], "tolerations": [ALL]}, True),
]


def policy():
    """Whether the policy lets an object through: match conditions, variables in their order, validations."""
    spec = next(yaml.safe_load_all((HERE / "taint-policy.yaml").read_text()))["spec"]
    env = celpy.Environment()

    def program(entry):
        return env.program(env.compile(entry["expression"]))

    conditions = [program(entry) for entry in spec.get("matchConditions", [])]
    variables = [(entry["name"], program(entry)) for entry in spec.get("variables", [])]
    validations = [program(entry) for entry in spec["validations"]]

    def passes(pod):
        known = {"object": celpy.json_to_cel(pod), "variables": celpy.celtypes.MapType()}
        if not all(one.evaluate(known) for one in conditions):
            return True
        for name, one in variables:
            known["variables"][celpy.celtypes.StringType(name)] = one.evaluate(known)
        return all(bool(one.evaluate(known)) for one in validations)

    return passes


def of_policy():
    passes = policy()
    for name, spec, want in PODS:
        assert passes({"metadata": {"name": "p"}, "spec": spec}) == want, name
        owned = {"name": "p", "ownerReferences": [{"kind": "DaemonSet"}]}
        assert passes({"metadata": owned, "spec": spec}), name
        job = {"name": "p", "ownerReferences": [{"kind": "Job"}]}
        assert passes({"metadata": job, "spec": spec}) == want, name
    for name in ("check", "watch"):
        for one in yaml.safe_load_all((HERE.parent / f"kubernetes/{name}.yaml").read_text()):
            if one["kind"] == "DaemonSet":
                assert passes({"metadata": {"name": "p"}, "spec": one["spec"]["template"]["spec"]}), name
    print(f"ok: taint-policy.yaml over {len(PODS)} pods, as of a DaemonSet, as of a Job; it lets ours through")


def node(name, status, taints=()):
    conditions = [{"type": "Ready", "status": "True"}]
    if status:
        conditions.append({"type": "GpuNodeUnhealthy", "status": status})
    spec = {"taints": [{"key": key, "value": "true", "effect": "NoSchedule"} for key in taints]} if taints else {}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


UNHEALTHY = "ringleader/unhealthy"
NODES = {
    one["metadata"]["name"]: one
    for one in [
        node("bad", "True"), node("bad-other", "True", ["other"]), node("bad-known", "True", [UNHEALTHY]), node("good", "False"),
        node("mended", "False", ["other", UNHEALTHY]), node("unknown", "Unknown", [UNHEALTHY]), node("unasked", None), node("lost", None, [UNHEALTHY]),
    ]
}  # fmt: skip
WANT = {"bad": [UNHEALTHY], "bad-other": ["other", UNHEALTHY], "bad-known": [UNHEALTHY], "good": [], "mended": ["other"],
        "unknown": [UNHEALTHY], "unasked": [], "lost": [UNHEALTHY]}  # fmt: skip


class Api(http.server.BaseHTTPRequestHandler):
    """As much of the API as `kubectl get nodes` and `kubectl taint node` ask."""

    def answer(self, value, code=200):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.split("?")[0]
        kinds = [{"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list", "patch"], "shortNames": ["no"]}]
        known = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds},
            "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": list(NODES.values())},
            **{f"/api/v1/nodes/{name}": one for name, one in NODES.items()},
        }
        if path in known:
            self.answer(known[path])
        else:
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)

    def do_PATCH(self):
        one = NODES[self.path.split("?")[0].rsplit("/", 1)[1]]
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # The list of taints is replaced as a whole.
        one["spec"]["taints"] = patch["spec"]["taints"] or []
        self.answer(one)

    def log_message(self, *_):
        pass


def of_script(kubectl):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        address = f"http://127.0.0.1:{server.server_port}"
        command = [HERE / "taint.sh", f"--server={address}"]
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "KUBECTL": kubectl}
        done = [subprocess.run(command, env=env, capture_output=True, text=True, check=False) for _ in range(2)]
        gone = subprocess.run([HERE / "taint.sh", "--server=http://127.0.0.1:9"], env=env, capture_output=True, check=False)
    server.shutdown()
    have = {name: sorted(taint["key"] for taint in one["spec"].get("taints", [])) for name, one in NODES.items()}
    assert done[0].returncode == 0 and have == {name: sorted(taints) for name, taints in WANT.items()}, (have, done[0])
    assert done[0].stdout.count("\n") == 3 and not done[1].stdout and done[1].returncode == 0, done
    assert gone.returncode != 0, gone
    print(f"ok: taint.sh over {len(NODES)} nodes: {done[0].stdout.strip()}".replace("\n", "; "))


of_policy()
program = sys.argv[1] if len(sys.argv) > 1 else shutil.which("kubectl")
if program:
    of_script(program)
else:
    print("skipped: taint.sh, since kubectl is not here")
