"""Planted bugs in what stores objects: uploads in parts, and what is left of them."""

from tests.mutants.edits import Edit, Target

UPLOADS = Target(
    "rsm_plugins/s3/uploads.py",
    (
        "tests/rsm_plugins/s3/test_upload_source.py",
        "tests/rsm_plugins/s3/test_uploads.py",
        "tests/rsm_plugins/s3/test_faults.py",
        "tests/rsm_plugins/s3/test_odd_servers.py",
        "tests/rsm_plugins/s3/test_requests.py",
    ),
)

SOURCES = Target(
    "rsm_plugins/files/segment_files.py",
    (
        "tests/rsm_plugins/s3/test_upload_source.py",
        "tests/rsm_plugins/s3/test_uploads.py",
        "tests/rsm_plugins/s3/test_faults.py",
        "tests/rsm_plugins/s3/test_odd_servers.py",
        "tests/rsm_plugins/s3/test_requests.py",
    ),
)

BODIES = Target("rsm_plugins/s3/bodies.py", ("tests/rsm_plugins/s3/test_bodies.py",))
BODIES_OF_CALLS = Target("rsm_plugins/s3/calls.py", ("tests/rsm_plugins/s3/test_bodies.py",))

HDFS_CALLS = Target(
    "rsm_plugins/hdfs/connection.py",
    ("tests/rsm_plugins/hdfs/test_connection.py", "tests/rsm_plugins/hdfs/test_tree.py"),
)

HDFS_FILES = Target("rsm_plugins/hdfs/tree.py", ("tests/rsm_plugins/hdfs/test_tree.py",))

HANGS = Target("rsm_plugins/process/hang_guard.py", ("tests/rsm_plugins/test_hang_guard.py",))

TREE = Target("rsm_plugins/files/store_tree.py", ("tests/rsm_plugins/test_local.py",))

BATCHES = ("tests/rsm_plugins/s3/test_batch_delete.py",)
S3 = Target("rsm_plugins/s3/manager.py", BATCHES)
OBJECTS = Target("rsm_plugins/s3/objects.py", BATCHES)
UPLOADS_OF_MANY = Target("rsm_plugins/s3/uploads.py", BATCHES)
CONTENT_MD5 = Target("rsm_plugins/s3/calls.py", BATCHES)
CANCELLED_BODIES = Target(
    "rsm_plugins/s3/calls.py", ("tests/rsm_plugins/s3/test_cancelled_bodies.py",)
)
ANSWERS = Target("rsm_plugins/contract/client.py", ("tests/rsm_plugins/test_batch_delete.py",))

EDITS: tuple[Edit, ...] = (
    *S3.edits(
        (
            "G4: the data of a segment whose manifest stays is deleted in a call for many",
            "self._remove({one: left[one] for one in left if one not in kept})",
            "self._remove({one: names[1:] for one, names in wanted.items()})",
        ),
        (
            "G4: logs go at the same time as manifests in a call for many",
            "self._remove({manifest: (manifest,) for manifest in wanted})",
            "self._remove(wanted)",
        ),
        (
            "H12: unfinished uploads stay after a call for many",
            "        kept |= await self._abort_uploads(",
            "        _ = (",
        ),
    ),
    *OBJECTS.edits(
        (
            "G4: an error that names no object of ours is passed over",
            "if name in asked else dict.fromkeys(asked, error)",
            "if name in asked else {}",
        ),
        (
            "an object that was throttled counts as deleted",
            "            for error in passing.values():\n                raise error\n",
            "",
        ),
        (
            "an object that stays throttled counts as deleted",
            "            return kept | dict.fromkeys(left, error)\n",
            "            return kept\n",
        ),
        (
            "a server that does not know DeleteObjects is asked for it for ever",
            "            self._deletes_many = False\n",
            "            pass\n",
        ),
        (
            "a server that refuses everything once is never asked for many again",
            "        if len(kept) < len(names):\n",
            "        if names:\n",
        ),
        (
            "an object that was not there is an error of a call for many",
            "            if verdict_of(error).kind is ErrorKind.NOT_FOUND:\n",
            "            if not code:\n",
        ),
    ),
    *UPLOADS_OF_MANY.edits(
        (
            "H12: uploads of other segments are aborted with those of many",
            "                    if name in wanted:\n",
            "                    if name:\n",
        ),
        (
            "H12: a server that lists whole names only hides the uploads of many",
            "            if len(names) == 1 or not self._lists_whole_names_only:\n",
            "            if names:\n",
        ),
        (
            "a log whose upload does not go away is deleted",
            "                            kept[name] = error\n",
            "                            log.info(str(error))\n",
        ),
        (
            "logs are deleted though their uploads cannot be listed",
            "            return dict.fromkeys(wanted, error)\n",
            "            return {name: error for name in kept}\n",
        ),
    ),
    *CANCELLED_BODIES.edits(
        (
            "a task whose group had failed once ends when aiohttp cancels its writer",
            "if task is None or task.cancelling() > before:",
            "if task is None or task.cancelling():",
        ),
        (
            "a caller that is cancelled goes on",
            "if task is None or task.cancelling() > before:",
            "if task is None:",
        ),
    ),
    *CONTENT_MD5.edits(
        (
            "servers that ask for Content-MD5 refuse a call for many",
            '"before-sign.s3.DeleteObjects"',
            '"before-sign.s3.DeleteObject"',
        ),
    ),
    *ANSWERS.edits(
        (
            "a plugin that answers for all together is believed",
            "        if not answer.segments:",
            "        if answer.segments is None:",
        ),
        (
            "a plugin that answers for others is believed",
            "        if len(answer.segments) != len(locators):",
            "        if len(answer.segments) > len(locators):",
        ),
        (
            "G4: the error of a segment is lost on the way",
            'error_of_detail(segment.error) if segment.HasField("error") else None',
            "None",
        ),
        (
            "a plugin without the call is called",
            "if Capability.BATCH_DELETE.value not in info.capabilities:",
            "if not info.capabilities:",
        ),
        (
            "a plugin whose store is away is asked for every segment",
            "                away = error\n                raise\n",
            "                raise\n",
        ),
    ),
    *TREE.edits(
        (
            "a folder that may be another one counts as durable",
            "is_same and self.size_of(found.descriptor, known.file) is not None",
            "is_same",
        ),
        (
            "a folder that was put back from a copy counts as durable",
            "is_same = found.levels == known.levels",
            "is_same = True",
        ),
        (
            "a link in place of a folder is followed",
            "return os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)",
            "return os.open(part, _DIRECTORY, dir_fd=parent)",
        ),
        (
            "a stale handle of a folder fails the write",
            "with ExitStack() as stack, suppress(OSError):",
            "with ExitStack() as stack, suppress(FileNotFoundError):",
        ),
        (
            "every folder is made durable for every object",
            "        self._durable[folder] = found\n",
            "        self._durable[found.file] = found\n",
        ),
    ),
    *HANGS.edits(
        (
            "a plugin that does not hang ends after the limit",
            "        timer = loop.call_later(seconds / _SETS_WITHIN_LIMIT, set_again)\n",
            "",
        ),
        (
            "a plugin that hangs says so and goes on hanging",
            "exit=True",
            "exit=False",
        ),
        (
            "the timer is set again after the plugin has stopped",
            "            timer.cancel()\n",
            "            timer.cancelled()\n",
        ),
    ),
    *BODIES.edits(
        (
            "a body that is given up goes on to its end",
            "            if not (is_answered and connection.may_stay):\n",
            "            if is_answered and not connection.may_stay:\n",
        ),
        (
            "a connection whose caller was cancelled with its answer is left open",
            "if not (is_answered and connection.may_stay):",
            "if not connection.may_stay:",
        ),
        (
            "a connection that did not get the whole body is used again",
            "self.may_stay = was_sent and received.may_stay and is_plain",
            "self.may_stay = received.may_stay",
        ),
        (
            "a connection that the server has ended is used again",
            "            if connection.is_quiet():\n",
            "            if connection:\n",
        ),
        (
            "an interim answer counts as the answer",
            "if found is None or found.status >= _FIRST_FINAL:",
            "if found is None or found.status:",
        ),
        (
            "the name in a certificate is not looked at",
            "server_hostname=self._host",
            "server_hostname='127.0.0.1'",
        ),
    ),
    *BODIES_OF_CALLS.edits(
        (
            "bodies pass an HTTP proxy by",
            "        if self._proxy_config.proxy_url_for(request.url):\n            return None\n",
            "",
        ),
    ),
    *HDFS_FILES.edits(
        (
            "a block that is not complete is recovered while its writer closes it",
            "                if size_bytes == self._size_bytes:\n",
            "                if self._size_bytes:\n",
        ),
        (
            "a file whose lease did not end counts as closed",
            "            return False  # the library's own question counts\n",
            "            return True\n",
        ),
        (
            "every file waits until the library asks again",
            "return await self._session.call(self._operation, self.path, self._recovered)",
            "return False",
        ),
    ),
    *HDFS_CALLS.edits(
        (
            "a call goes on alone though its caller gave up",
            "            calling.cancel()\n            await asyncio.wait((calling,))\n",
            "",
        ),
        (
            "a call that failed counts as ended well",
            "            calling.result()\n",
            "            pass\n",
        ),
        (
            "G10: every call to a silent NameNode takes a thread",
            "                await self._proven(client, ends_at)\n",
            "",
        ),
        (
            "G10: every caller asks a silent NameNode in a thread of its own",
            "if client.question is None or client.question.future.done():",
            "if client.question is None or client.question:",
        ),
        (
            "G10: a client that was replaced is trusted in spite of its silence",
            "        client.proven_at = _UNPROVEN\n",
            "",
        ),
        (
            "a call that was given up may change what was cleaned up after it",
            "_GIVE_UP_SECONDS * (now() < ends_at)",
            "_GIVE_UP_SECONDS * (now() > ends_at)",
        ),
    ),
    *SOURCES.edits(
        (
            "H13: a file cut short under the upload goes up as it is",
            "                if not piece:\n",
            "                if not piece:\n                    return\n",
        ),
        (
            "parts begin where the log does",
            "at = source.position + position",
            "at = position",
        ),
    ),
    *UPLOADS.edits(
        (
            "G9: the log that went up is not compared with the one that was planned",
            "            raise first_of(errors) from errors\n        reader.prove()\n",
            "            raise first_of(errors) from errors\n",
        ),
        (
            "G9: a small log is not compared with the one that was planned",
            "                check_planned(self._data, whole)\n",
            "                pass\n",
        ),
        (
            "G9: the last piece of another log than the planned one goes up",
            "            if not left:\n",
            "            if left < 0:\n",
        ),
        (
            "G9: the checksum of the whole is that of the last part",
            "self._whole = joined_crc32c(self._whole, part, size_bytes)",
            "self._whole = part",
        ),
        (
            "G9: a part is proved by the checksum of all before it",
            "        part, pieces = 0, []\n",
            "        part, pieces = self._whole, []\n",
        ),
        (
            "a failed upload is left to be paid for",
            "        except BaseException:\n            await upload.abort()\n            raise\n",
            "        except BaseException:\n            raise\n",
        ),
        (
            "H12: a cancelled upload is left to be paid for",
            "        except BaseException:\n            await upload.abort()\n            raise\n",
            "        except Exception:\n            await upload.abort()\n            raise\n",
        ),
        (
            "parts are completed in the order in which they arrived",
            "parts = [self._parts[number].fields() for number in sorted(self._parts)]",
            "parts = [self._parts[number].fields() for number in self._parts]",
        ),
        (
            "a completion whose answer was lost counts as failed",
            "                await check(client, error)\n",
            "                raise\n",
        ),
        (
            "H11: whatever object is there counts as ours",
            '        if found.get("ChecksumCRC32C") != self.composite_checksum():\n',
            '        if found.get("ChecksumCRC32C") is None:\n',
        ),
        (
            "an upload that a late part brings back is not looked for",
            "                await self._objects.calls.pause(SETTLE_SECONDS)\n",
            "                pass\n",
        ),
        (
            "an abort is believed at once",
            "            if not await self._is_there():\n                return\n",
            "            return\n",
        ),
        (
            "a part that was cut off is not remembered",
            "            self._cut_off = True\n            raise\n",
            "            raise\n",
        ),
        (
            "an upload that is gone already is an error",
            '                if code_of(error) != "NoSuchUpload":\n                    raise\n\n',
            "                raise\n\n",
        ),
        (
            "only the first page of unfinished uploads is seen",
            '            if not answer.get("IsTruncated"):\n                return\n',
            "            return\n",
        ),
        (
            "H12: uploads of others are aborted",
            "                if is_wanted(name, began_ms, now_ms):\n",
            "                if name:\n",
        ),
        (
            "a log of more than 10000 parts cannot be stored",
            "return max(wanted_bytes, -(-log_bytes // PARTS_MAX))",
            "return wanted_bytes",
        ),
        (
            "G10: parts in memory are bounded by nothing",
            "range(1, count + 1):\n                    await self._permits.acquire()\n",
            "range(1, count + 1):\n",
        ),
        (
            "a permit is lost with every source that fails",
            "            self._permits.release()\n            raise\n",
            "            raise\n",
        ),
    ),
    UPLOADS.harmless(
        "what is visible counts only with the checksum of checksums of our own parts",
        "a completion that nobody knows of is looked for though it was tried once",
        'if code_of(error) != "NoSuchUpload" or tried == 1:',
        'if code_of(error) != "NoSuchUpload":',
    ),
)
