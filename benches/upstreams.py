#!/usr/bin/env python3
"""What upstreams cost: CPU time per call with `upstream_url` alone, with one upstream, and with twenty.

    benches/upstreams.py --loadtest target/release/weir-loadtest --weir target/release/weir [--rounds 9]

One binary in six forms (pass-through and default, each with none, one and twenty upstreams), closed loop, measured in turn in every
round, in an order that is turned round each time. Of the twenty the last one serves the calls and half of the others have routes that fit other
calls. Reported: medians of the CPU time per call, user and kernel, and of the ratios to the form without upstreams in the same round.
Exit code: 0 all answers as expected, 1 some call failed, 2 it could not be done.
"""

import pathlib
import statistics
import sys
import tempfile
import types

import instructions
import side_by_side as bench

FORMS = [(passthrough, count) for passthrough in (True, False) for count in (0, 1, 20)]


def arguments():
    parser = bench.base_arguments(__doc__, rounds=9, duration="3s", warmup="1s")
    bench.call_arguments(parser, connections=64)
    options = bench.parse(parser)
    options.arrivals, options.dialect, options.stream, options.mode = "constant", "chat", False, "closed"
    options.frames, options.frame_ms, options.rate = 50, 10, None
    return options


def measure(options, url, work, passthrough, count):
    """CPU microseconds per call of one form, and how many calls failed."""
    work.mkdir()
    extra = work / "upstreams.yaml"
    extra.write_text("\n".join(instructions.upstreams(types.SimpleNamespace(url=url), count)) + "\n" if count else "")
    options.weir_extra = extra
    with bench.weir(options, url, work, passthrough) as (base, pids):
        report = bench.load(name(passthrough, count), options, base, pids, work)
    return report["process"]["cpu_us_per_request"], report["failed"]


def name(passthrough, count):
    return f"{'pass-through' if passthrough else 'default'}, {['no', 'one', 'twenty'][(0, 1, 20).index(count)]} upstream{'s' if count != 1 else ''}"


def main():
    options = arguments()
    taken, failed = {form: [] for form in FORMS}, 0
    with tempfile.TemporaryDirectory(prefix="weir-upstreams-") as temp:
        temp, port = pathlib.Path(temp), bench.free_port()
        log = temp / "provider.log"
        with bench.process(bench.provider_command(options, port), log) as provider:
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            for number in range(1, options.rounds + 1):
                for form in FORMS[:: 1 if number % 2 else -1]:
                    cpu, bad = measure(options, url, temp / f"{number}-{form[0]}-{form[1]}", *form)
                    taken[form].append(cpu)
                    failed += bad
                    print(f"round {number}/{options.rounds} {name(*form)}: {cpu:.2f} us/call, failed {bad}", file=sys.stderr, flush=True)
    print(f"calls of {options.body_bytes} bytes, closed loop, {options.connections} connections, medians of {options.rounds} rounds\n")
    print("| form | CPU us/call (min-max) | to none, same round |\n|---|--:|--:|")
    for form, values in taken.items():
        ratios = [own / none for own, none in zip(values, taken[(form[0], 0)])]
        print(f"| {name(*form)} | {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f}) | {statistics.median(ratios):.3f} |")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"upstreams: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
