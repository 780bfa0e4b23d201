"""The image: one layer on nothing, written as an OCI layout without a daemon (OCI image-spec 1.1)."""

import datetime
import hashlib
import json
import pathlib

from .common import FILES, Archive, output, packed

OWNER = 65532


def libraries(binary):
    """What the binary is linked with, and the loader: (path in the image, bytes)."""
    for line in output("ldd", binary.path).splitlines():
        words = line.split()
        path = words[2] if "=>" in words else words[0]
        if path.startswith("/"):
            yield path, pathlib.Path(path).read_bytes()


def layer(release):
    """The appliance, its libraries, certificates, settings, a folder for the record."""
    archive = Archive(release.when)
    archive.add_below("usr/bin/weir", release.binaries["appliance"].bytes, 0o755)
    for path, data in sorted(libraries(release.binaries["appliance"])):
        archive.add_below(path.lstrip("/"), data, 0o755)
    certificates = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        archive.add_below("etc/ssl/certs/ca-certificates.crt", certificates.read_bytes())
    archive.add_below("etc/passwd", f"weir:x:{OWNER}:{OWNER}::/var/lib/weir:/sbin/nologin\n".encode())
    archive.add_below("etc/nsswitch.conf", b"hosts: files dns\n")
    # Inside a container the loopback interface is the container's own.
    settings = (FILES / "weir.yaml").read_text().replace("listen_addr: 127.0.0.1:8080", "listen_addr: 0.0.0.0:8080")
    archive.add_below("etc/weir/weir.yaml", settings.encode())
    archive.add_below("usr/share/doc/weir/THIRD-PARTY.txt", release.third_party["appliance"].encode())
    archive.add_below("usr/share/doc/weir/weir.cdx.json", release.sboms["appliance"])
    archive.folder("var")
    archive.folder("var/lib")
    archive.folder("var/lib/weir", 0o750, OWNER)
    archive.folder("tmp", 0o1777)
    return archive.bytes()


def oci(release):
    """The layout in one tar file, as `skopeo copy oci-archive:`, `podman load` and `docker load` take it."""
    whole = layer(release)
    small = packed(whole)
    stamp = datetime.datetime.fromtimestamp(release.when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs = {}

    def blob(data, media):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    layer_entry = blob(small, "application/vnd.oci.image.layer.v1.tar+gzip")
    config = {
        "architecture": release.arch, "os": "linux", "created": stamp,
        "config": {
            "User": f"{OWNER}:{OWNER}", "Entrypoint": ["/usr/bin/weir"], "Cmd": ["--config", "/etc/weir/weir.yaml", "--runtime-config", "/var/lib/weir/config.runtime.yaml"], "WorkingDir": "/var/lib/weir",
            "ExposedPorts": {"8080/tcp": {}}, "Volumes": {"/var/lib/weir": {}}, "StopSignal": "SIGTERM", "Env": ["PATH=/usr/bin"],
            "Labels": {"org.opencontainers.image.version": release.version, "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": "weir"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(whole).hexdigest()}"]},
        "history": [{"created": stamp, "created_by": "dist/build"}],
    }
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"), "layers": [layer_entry]}
    entry = blob(json.dumps(manifest).encode(), manifest["mediaType"])
    entry |= {"platform": {"architecture": release.arch, "os": "linux"},
              "annotations": {"org.opencontainers.image.ref.name": release.version, "io.containerd.image.name": f"docker.io/library/weir:{release.version}"}}
    archive = Archive(release.when)
    archive.add("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    archive.add("index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
    archive.folder("blobs")
    archive.folder("blobs/sha256")
    for digest, data in sorted(blobs.items()):
        archive.add(f"blobs/sha256/{digest}", data)
    release.say("the image's layer, compressed", len(small))
    release.keep(f"weir-{release.version}-{release.arch}-oci.tar", archive.bytes())
