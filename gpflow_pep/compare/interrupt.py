"""Ctrl-C that is heeded at once, also while TensorFlow computes."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What a shell gives a command that Ctrl-C has ended.
EXIT_CODE = 130


@contextmanager
def ending_at_once(farewell: Callable[[], str]) -> Iterator[None]:
    """
    End the process at the first Ctrl-C.

    Python runs what handles a signal between two of its own instructions, and so not before a long
    evaluation of TensorFlow has returned. But its C code can write the signal's number to a socket
    at once; a thread reads it there and ends the process. What has been written stays.

    :param farewell: Says the last words, for stderr.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread alone
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(reader, farewell), daemon=True)
    watcher.start()
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, handler)
        writer.close()  # ends the watcher
        watcher.join()
        reader.close()


def _watch(reader: socket.socket, farewell: Callable[[], str]) -> None:
    while received := reader.recv(1):
        if received[0] == signal.SIGINT:
            sys.stderr.write(f"\n{farewell()}\n")
            sys.stderr.flush()
            os._exit(EXIT_CODE)
