"""The `vitbo` command from outside: mistakes are one line on standard error and exit code 2."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vitbo_lib.errors import UserError

OPTION_OF = {"scale": "init_scale"}  # where the library's name is another


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code: 0, 2 for a mistake in the request (one line on stderr), 130 when interrupted."""
    args = None
    try:
        with _loading():
            from vitbo_lib.commands import build_parser  # loads torch, which takes a while

        args = build_parser().parse_args(argv)
        args.run(args)
        if sys.stdout is not None:  # closed by the caller, as in `vitbo ... >&-`
            sys.stdout.flush()
    except UserError as error:
        return _mistake(_as_typed(str(error), args))
    except BrokenPipeError:  # the reader of our output has gone, as in `vitbo ... | head`
        _drop_output()
    except OSError as error:
        if error.filename is None:  # standard output: a full disk, say
            _drop_output()
        where = "the output" if error.filename is None else error.filename
        return _mistake(f"cannot write or read {where}: {error.strerror or error}; make room, or choose another place")
    except OverflowError:
        return _mistake("these numbers are too large to compute with; give smaller ones")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _lacks_memory(error):
            raise
        return _mistake("these sizes do not fit in memory; give smaller ones")
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0


@contextmanager
def _loading() -> Iterator[None]:
    """While libraries are loaded, Ctrl-C ends the process at once, before anything is written: as an exception inside a
    half-loaded library it may be swallowed there and come out as another."""
    ours = (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted(*_) -> None:
    if sys.stderr is not None:  # closed by the caller: the number 2 may be another file by now
        with suppress(OSError):
            os.write(2, b"vitbo: interrupted\n")  # not print, which the signal may have interrupted
    os._exit(130)


def say(text: str) -> None:
    """A line on standard error, unless the caller closed it."""
    if sys.stderr is not None:
        print(f"vitbo: {text}", file=sys.stderr)


def _mistake(text: str) -> int:
    say(f"error: {text}")
    return 2


def _as_typed(message: str, args) -> str:
    """A message that begins with a number's name as the library has it, begins with the option that was typed.

    >>> from argparse import Namespace
    >>> _as_typed("d_h = 0 is not possible; give a larger one", Namespace(d_h=0))
    '--d-h 0 is not possible; give a larger one'
    """
    name, found, rest = message.partition(" = ")
    name = OPTION_OF.get(name, name)
    return f"--{name.replace('_', '-')} {rest}" if found and getattr(args, name, None) is not None else message


def _lacks_memory(error: RuntimeError) -> bool:
    """Whether torch found no memory; on a CPU it has no error class for that."""
    return type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)


def _drop_output() -> None:
    """What is still unwritten goes nowhere, so that Python does not try again, and complain, when it ends."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
