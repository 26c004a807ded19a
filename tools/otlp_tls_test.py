#!/usr/bin/env python3
"""Exports metrics of `watch` over OTLP to a server with TLS, whose certificate an authority of this test has signed: compressed, with the
authority in OTEL_EXPORTER_OTLP_CERTIFICATE, with a client's certificate, and in vain without either. Needs openssl. Listens on this
machine only.

    tools/otlp_tls_test.py target/debug/ringleader
"""

import gzip
import http.server
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading


class Collector(http.server.BaseHTTPRequestHandler):
    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        packed = self.headers.get("content-encoding")
        plain = gzip.decompress(body) if packed == "gzip" else body
        Collector.got.append((self.path, packed, len(body), plain))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def certificates(folder):
    """An authority, and a certificate by it for the server and one for the client."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority of a test", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE")  # fmt: skip
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        usage = "serverAuth" if name == "server" else "clientAuth"
        (folder / "more").write_text(f"basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost\nextendedKeyUsage={usage}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", f"{name}.pem",
                "-extfile", "more")  # fmt: skip


def serve(folder, asks_client):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if asks_client:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.handle_error = lambda *_: None
    # The handshake is the connection's own affair, so that one that fails does not hold up the next.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def watch(program, folder, server, **variables):
    """What the collector got, and what `watch` said."""
    Collector.got.clear()
    named = {f"OTEL_EXPORTER_OTLP_{name}": str(value) for name, value in variables.items()}
    env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"https://localhost:{server.server_port}", OTEL_METRIC_EXPORT_INTERVAL="500", **named)
    done = subprocess.run([program, "watch", "--stay", "--no-screen", "--for", "3", "--out", folder, "--rings", folder], env=env,
                          capture_output=True, text=True, check=False)  # fmt: skip
    return list(Collector.got), done.stdout + done.stderr


def main(program):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        certificates(folder)
        server = serve(folder, asks_client=False)
        got, said = watch(program, folder, server, CERTIFICATE=folder / "ca.pem", COMPRESSION="gzip")
        assert got and "OTLP" not in said, (got, said)
        path, packed, n_bytes, plain = got[-1]
        assert path == "/v1/metrics" and packed == "gzip" and b"ringleader_" in plain, got[-1]
        print(f"ok: {len(got)} messages over TLS by the given authority; {len(plain)} bytes are {n_bytes} with gzip")
        got, said = watch(program, folder, server, CERTIFICATE=folder / "ca.pem")
        assert got and got[-1][1] is None and b"ringleader_" in got[-1][3], (got, said)
        got, said = watch(program, folder, server)
        assert not got and said.count("OTLP export fails") == 1, (got, said)
        print("ok: without the authority nothing is sent, and one note says so:", next(line for line in said.splitlines() if "OTLP" in line).strip())
        got, said = watch(program, folder, server, CERTIFICATE=folder / "none.pem")
        assert not got and "none.pem" in said, (got, said)
        server.shutdown()
        server = serve(folder, asks_client=True)
        got, said = watch(program, folder, server, CERTIFICATE=folder / "ca.pem")
        assert not got and "OTLP export fails" in said, (got, said)
        got, said = watch(program, folder, server, CERTIFICATE=folder / "ca.pem", CLIENT_CERTIFICATE=folder / "client.pem",
                          CLIENT_KEY=folder / "client.key")  # fmt: skip
        assert got and "OTLP" not in said, (got, said)
        print("ok: a collector that asks for a client's certificate gets it, and refuses a watcher without")


main(sys.argv[1])
