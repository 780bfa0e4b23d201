#!/usr/bin/env python3
"""Memory of idle client connections: opens many, lets them rest, and divides the growth of the gateway's resident memory.

    benches/idle_connections.py --weir target/release/weir [--connections 10000] [--io-driver io_uring|epoll]

Three states are measured, each on a fresh gateway: connections that never spoke, connections that made one request each
(twenty at a time), and the same over TLS when --cert and --key are given. The clients come from several loopback addresses,
so that neither ports nor the share of one address run out. Needs a descriptor limit above the number of connections.
"""

import argparse
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time

REQUEST = b"GET /livez HTTP/1.1\r\nHost: weir\r\n\r\n"
SOURCES = 8


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def is_ready(port, tls):
    """Whether calls are served: what answers before that closes its connections when it hands over."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            if tls:
                connection = untrusting().wrap_socket(connection, server_hostname="localhost")
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def untrusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def start(options, tls):
    folder = tempfile.mkdtemp()
    config = os.path.join(folder, "service.yaml")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [
        f"listen_addr: 127.0.0.1:{port}",
        "upstream_url: http://127.0.0.1:9",
        "storage: {profile: memory}",
        f"server: {{io_driver: {options.io_driver}, max_client_connections: {options.connections * 2}}}",
    ]
    if tls:
        lines += ["enable_tls: true", f"tls_cert_file: '{options.cert}'", f"tls_key_file: '{options.key}'"]
    with open(config, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    gateway = subprocess.Popen([options.weir, "--config", config], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if is_ready(port, tls):
            return gateway, port
        time.sleep(0.05)
    gateway.kill()
    sys.exit("the gateway did not start")


def connect(port, number, context):
    raw = socket.socket()
    raw.bind((f"127.0.0.{2 + number % SOURCES}", 0))
    raw.connect(("127.0.0.1", port))
    return context.wrap_socket(raw, server_hostname="localhost") if context else raw


def speak(connections):
    for connection in connections:
        connection.sendall(REQUEST)
    for connection in connections:
        answer = connection.recv(4096)
        if not answer.startswith(b"HTTP/1.1 200"):
            sys.exit(f"unexpected answer: {answer[:80]!r}")


def measure(options, name, spoken, context):
    gateway, port = start(options, context is not None)
    try:
        # What the first connections set up once is not theirs.
        warm = [connect(port, number, context) for number in range(50)]
        speak(warm)
        time.sleep(2)
        before = resident_bytes(gateway.pid)
        connections = []
        for number in range(options.connections):
            connections.append(connect(port, number, context))
            if spoken and len(connections) % 20 == 0:
                speak(connections[-20:])
        time.sleep(3)
        after = resident_bytes(gateway.pid)
        held = len(os.listdir(f"/proc/{gateway.pid}/fd"))
        if held < options.connections:
            sys.exit(f"only {held} descriptors are open: the limit is too low")
        each = (after - before) / options.connections
        print(f"{name}: {before / 2**20:.1f} MiB -> {after / 2**20:.1f} MiB, {each:.0f} bytes per connection")
        # They still work.
        speak(connections[:: max(1, options.connections // 100)])
    finally:
        gateway.terminate()
        gateway.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", required=True)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--io-driver", default="io_uring")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < options.connections + 200:
        sys.exit(f"the descriptor limit {hard} (soft {soft}) is too low for {options.connections} connections")
    print(f"{options.connections} connections, {options.io_driver}")
    measure(options, "never spoke", False, None)
    measure(options, "one request each", True, None)
    if options.cert and options.key:
        measure(options, "one request each over TLS", True, untrusting())


if __name__ == "__main__":
    main()
