"""Planted bugs in the reader of ranges from S3 and in the hand-over of scratch files."""

from tests.mutants.edits import Edit, Target

RANGES = Target("rsm_plugins/s3/ranges.py", ("tests/rsm_plugins/s3/test_ranges.py",))
PLAIN_HTTP = Target(
    "rsm_plugins/s3/plain_http.py",
    tuple(f"tests/rsm_plugins/s3/test_{name}.py" for name in ("ranges", "bodies", "plain_http")),
)
SLOTS = Target("rsm_plugins/contract/client_files.py", ("tests/rsm_plugins/test_handover.py",))

SOURCE = Target(
    "rlm/reading/source.py",
    ("tests/rlm/reading/test_verify.py", "tests/rlm/reading/test_integrity.py"),
)

EDITS: tuple[Edit, ...] = (
    *SOURCE.edits(
        (
            "G9: a lent file is read for another range",
            "isinstance(found, FileSlice) and found.keeper is None:",
            "isinstance(found, FileSlice):",
        ),
        (
            "H25: a lent file that is gone is taken for a lost object",
            "if found.keeper is not None:",
            "if False:",
        ),
    ),
    *RANGES.edits(
        (
            "G9: the buffer of a body is used again while a view of it is held",
            "        gone = weakref.finalize(slot, self._free.append, mapping)\n"
            "        gone.atexit = False\n",
            "        self._free.append(mapping)\n",
        ),
        (
            "G10: all buffers of bodies stay mapped",
            "deque(maxlen=SLOTS_KEPT)",
            "deque()",
        ),
        (
            "H36: the buffer of a body has the size that the server declares",
            "size_bytes is not None and size_bytes <= max_bytes",
            "size_bytes is not None and size_bytes <= SLOT_BYTES",
        ),
        (
            "G9: a body whose connection ended is taken for whole",
            "            self._arrived.set_exception(error)\n",
            "            self._arrived.set_result(None)\n",
        ),
        (
            "one address that does not answer takes all the time to connect",
            "                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,\n",
            "",
        ),
        (
            "H36: a body that nobody waits for any more keeps its connection",
            "            self.close()\n            raise\n",
            "            raise\n",
        ),
        (
            "G9: bytes that follow an answer are the next answer",
            " and len(early) <= size_bytes\n",
            "\n",
        ),
        (
            "a cancelled request leaves its connection open",
            "            if answer.cancelled():\n                self.abort()\n",
            "            if answer.cancelled():\n                pass\n",
        ),
    ),
    *PLAIN_HTTP.edits(
        (
            "a connection that was made for a cancelled caller stays open",
            "            task.add_done_callback(_abort_unwanted)\n",
            "",
        ),
        (
            "a connection that was idle too long is used again",
            "            if connection.idle_since >= oldest:\n",
            "            if connection:\n",
        ),
        (
            "G9: a body that is encoded is taken for plain",
            'if is_encoded or "transfer-encoding" in headers:',
            "if False:",
        ),
        (
            "G9: an answer with two lengths is believed",
            " or key in _FRAMING & headers.keys()",
            "",
        ),
        (
            "an overloaded server is asked twice",
            "return 0 if self.status >= _FIRST_OF_SERVER or self.status == _TOO_MANY else None",
            "return None",
        ),
    ),
    *SLOTS.edits(
        (
            "G9: a scratch file is filled again while its range is held",
            "        gone = weakref.finalize(keeper, self._returned, slot)\n"
            "        gone.atexit = False\n",
            "        self._returned(slot)\n",
        ),
        (
            "G10: scratch files that were lent are never used again",
            "        gone = weakref.finalize(keeper, self._returned, slot)\n"
            "        gone.atexit = False\n",
            "",
        ),
        (
            "G10: as many scratch files as there are fetches stay",
            "if self._is_closed or len(self._free) >= self._settings.kept:",
            "if self._is_closed:",
        ),
    ),
)
