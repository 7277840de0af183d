"""Exit on Ctrl-C without waiting for TensorFlow."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

#: What a shell gives a command that Ctrl-C has ended.
EXIT_CODE = 130


@contextmanager
def exit_on_sigint(message: str) -> Iterator[None]:
    """
    End the process at the first Ctrl-C, with a message on stderr.

    Python runs a signal's handler between two of its own instructions, and so not before a long
    evaluation of TensorFlow has returned. But its C code can write the signal's number to a socket
    at once; a thread reads it there and ends the process. What has been written stays.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set a signal's handler
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(reader, message), daemon=True)
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


def _watch(reader: socket.socket, message: str) -> None:
    while received := reader.recv(1):
        if received[0] == signal.SIGINT:
            terminal = Console(stderr=True)
            terminal.show_cursor()  # which a progress bar has hidden
            terminal.print(f"\n{message}", markup=False, highlight=False, soft_wrap=True)
            terminal.file.flush()
            os._exit(EXIT_CODE)
