"""The two binaries: the appliance (packages, tarball, image) and the full one with `weir demo` (wheel, npm)."""

import hashlib
import os
import pathlib
import re
import shutil
import sys

from .common import ROOT, output, run, venv, version

# The oldest C library the binaries run with: RHEL 8, Debian 10, Ubuntu 18.10.
GLIBC = "2.28"
ZIG = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"]
PROFILE = ROOT / "dist" / "profile" / "weir.profdata"
# Functions of our own crates, as rustc names them: their names change with the crates they are built of.
OWN = re.compile(rb"_ZN\d+weir[0-9A-Za-z_.$]*E")
# Some are inlined wherever they are called and have no name in the binary any more.
FITS_LEAST = 0.25
FLAVOURS = {"appliance": ["--no-default-features"], "full": []}


def build_name():
    """What `weir --version` says: version, commit and its date; "changed" where the checkout is not what the commit holds."""
    commit = output("git", "rev-parse", "--short=10", "HEAD", cwd=ROOT)
    changed = ", changed" if output("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT) else ""
    return f"{version()} ({commit}, {output('git', 'log', '-1', '--format=%cs', cwd=ROOT)}{changed})"


def library(programs):
    """The folder of Zig's own library."""
    return output(programs / "python3", "-c", "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'lib')")


def linker(folder):
    """Zig's linker with the symbols of an older C library. Only linking is its work: the code is that of rustc and of this machine's cc."""
    programs = venv(folder, *ZIG)
    # rustc takes the form of the arguments from the name: this one is a C compiler.
    script = folder / "zig-cc"
    script.write_text(
        "#!/bin/sh\n"
        f"export PATH=\"{programs}:$PATH\"\n"
        # Zig compiles its start files when it first needs them, and writes into their symbols the folder it works in and that of its
        # library: both are named alike wherever Zig lies.
        f'exec 9<"{library(programs)}"\n'
        "export ZIG_LIB_DIR=/proc/self/fd/9\n"
        "cd /\n"
        f'exec "{programs}/cargo-zigbuild" zig cc -- -target "$(uname -m)-linux-gnu.{GLIBC}" "$@"\n'
    )
    script.chmod(0o755)
    return script


def build(flavour, out, glibc):
    """The release binary with the profile, without paths of this machine in it. dist/rustc says why it sets what RUSTFLAGS could."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    target = out / ".target"
    environment = os.environ | {
        "RUSTC_WRAPPER": str(ROOT / "dist" / "rustc"),
        "WEIR_BUILD": build_name(),
        "WEIR_DIST_ROOT": str(ROOT),
        "WEIR_DIST_CARGO": str(home),
        "WEIR_DIST_SYSROOT": output("rustc", "--print", "sysroot", cwd=ROOT),
        "WEIR_DIST_TARGET": str(target),
        "WEIR_DIST_LINKER": "" if glibc == "host" else str(linker(out / ".zig")),
        "CFLAGS": " ".join(f"-ffile-prefix-map={old}={new}" for old, new in ((home, "/cargo"), (ROOT, "/weir"), (target, "/target"))),
        "CARGO_TARGET_DIR": str(target),
        "CARGO_INCREMENTAL": "0",
    }
    run("cargo", "build", "--release", "--locked", "-p", "weir", "--bin", "weir", *FLAVOURS[flavour], cwd=ROOT, env=environment)
    return target / "release" / "weir"


def say_what_fits(whole):
    """The compiler says nothing of functions that the profile does not know, and a profile of other code does nothing."""
    profiled = set(OWN.findall(PROFILE.read_bytes()))
    fit = profiled & set(output("nm", whole).encode().split())
    print(f"{'functions of the profile in it, our own':<44} {len(fit):>6,} of {len(profiled):,}", flush=True)
    if len(fit) < FITS_LEAST * len(profiled):
        print("dist/build: the profile is of other code, and the binary is as without one; benches/profile.py makes it anew", file=sys.stderr)


class Binary:
    """A binary without symbols, and its symbols by its build id (none where it came without)."""

    def __init__(self, whole, folder):
        folder.mkdir(parents=True)
        self.path = folder / "weir"
        symbols = folder / "weir.debug"
        run("objcopy", "--only-keep-debug", whole, symbols)
        run("objcopy", "--strip-all", whole, self.path)
        self.bytes, self.symbols = self.path.read_bytes(), symbols.read_bytes()
        found = re.search(r"Build ID: ([0-9a-f]{40})$", output("readelf", "-n", self.path), re.MULTILINE)
        self.build_id = found and self.named_by_content(bytes.fromhex(found[1]))
        self.path.write_bytes(self.bytes)
        self.path.chmod(0o755)

    def named_by_content(self, linked):
        """A build id of what is shipped. The linker's is also one of the symbols, and Zig's own start files have its folder in theirs."""
        named = hashlib.sha1(self.bytes.replace(linked, bytes(len(linked)), 1)).digest()
        self.bytes, self.symbols = (whole.replace(linked, named, 1) for whole in (self.bytes, self.symbols))
        return named.hex()

    def oldest_glibc(self):
        """The highest version of the C library that it asks for."""
        numbers = re.findall(r"\bGLIBC_([0-9.]+)", output("objdump", "-T", self.path))
        return max(numbers, key=lambda text: [int(part) for part in text.split(".")])

    def needs(self, library):
        return library in output("readelf", "-d", self.path)


def binaries(options, out, work):
    """Both, built or as given: one that is given alone stands for the other, too."""
    given = {"appliance": options.appliance or options.binary, "full": options.binary or options.appliance}
    made = {}
    for flavour in FLAVOURS:
        whole = given[flavour]
        if whole is None:
            # Both come to lie at the same place.
            whole = shutil.copy2(build(flavour, out, options.glibc), work / f"weir-{flavour}")
            say_what_fits(whole)
        made[flavour] = Binary(pathlib.Path(whole).resolve(), work / flavour)
        print(f"{'weir, ' + flavour:<44} {len(made[flavour].bytes):>12,} bytes stripped, glibc {made[flavour].oldest_glibc()}", flush=True)
    sys.stdout.flush()
    return made
