"""Runs a script's checks, a line each, and ends with 1 if any failed."""

import sys
import time
import traceback


def run(checks):
    failed = 0
    for check in checks:
        name = check.__name__.replace("_", " ")
        started = time.monotonic()
        try:
            check()
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def refused(error, status, call):
    """`call` must raise this error of a client's, with this status."""
    try:
        call()
    except error as found:
        same(found.status_code, status)
        return found
    raise AssertionError(f"no {error.__name__} was raised")
