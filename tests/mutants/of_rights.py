"""Planted bugs in the rights of principals: one is missing, or a check says that all are there."""

from tests.mutants.edits import Edit, Target

_RIGHTS = Target("rlm/plans/rights.py", ("tests/rlm/plans/test_rights.py",))
_AUTHORIZER = Target("rlm/plans/authorizer.py", ("tests/rlm/plans/test_authorizer.py",))
_READER = Target("rlm/service/reader_service.py", ("tests/rlm/test_reader_service.py",))
_OPERATOR = Target("rlm/service/store_command.py", ("tests/rlm/service/test_store_command.py",))
_SPARK = Target("tiered_reads/kafka_client.py", ("tests/tiered_reads/test_kafka_client.py",))
_REFUSED = Target("rlmm/clients.py", ("tests/rlmm/test_publisher.py",))
_COMMAND = Target("rlm/cli/acls.py", ("tests/rlm/cli/test_acls.py",))
_POLICIES = Target("rsm_plugins/s3/rights.py", ("tests/rsm_plugins/s3/test_policy.py",))
_PRINCIPALS = Target("rsm_plugins/s3/rights.py", ("tests/rlm/cli/test_bucket_policy.py",))
_RECORDED = Target("rsm_plugins/s3/rights.py", ("tests/rsm_plugins/s3/test_rights.py",))
_SWEEPS = Target("rsm_plugins/process/plugin.py", ("tests/rsm_plugins/test_sweep.py",))

EDITS: tuple[Edit, ...] = (
    *_RIGHTS.edits(
        (
            "a service that trims may not delete",
            '("Delete", "rlm/broker/deletions.py", "It is not trimmed: the disk fills.", _TIER)',
            '("Delete", "rlm/broker/deletions.py", "It is not trimmed.", When.SHARE_GROUPS)',
        ),
        (
            "a prefix is given as a name",
            "return ((self.prefix, PREFIXED),)",
            'return ((self.prefix, "literal"),)',
        ),
    ),
    *_READER.edits(
        (
            "H40: a reader that lacks a right says nothing",
            "lost, access.findings)",
            "lost)",
        ),
    ),
    *_OPERATOR.edits(
        (
            "H40: a command that may not read waits for minutes and gives no reason",
            "        await _check_rights(config, allowed)\n",
            "",
        ),
    ),
    *_SPARK.edits(
        (
            "H40: a query that is refused names another right than it lacks",
            'topic_acl("Read", topic.name)',
            'topic_acl("Describe", topic.name)',
        ),
    ),
    *_REFUSED.edits(
        (
            "H40: the right to another topic is named beside the one that is missing",
            " or needs\n",
            " and needs\n",
        ),
    ),
    *_AUTHORIZER.edits(
        (
            "what is denied counts as allowed",
            "if denied_by is not None:",
            "if denied_by is None and not mine:",
        ),
        (
            "what is denied to everybody is overlooked",
            "            EVERY_PRINCIPAL,\n",
            "            acl.principal,\n",
        ),
        (
            "what one host may is taken for what all may",
            "    if entry.host not in (_ANY_HOST, host):\n        return False\n    enough",
            "    enough",
        ),
        (
            "a denial of Read denies Describe",
            "return entry.operation in (acl.operation, ALL_OPERATIONS) and _touches",
            "return entry.operation in _IMPLIED_BY.get(acl.operation, frozenset()) "
            "| {acl.operation, ALL_OPERATIONS} and _touches",
        ),
        (
            "a name allows a whole prefix",
            "return acl.pattern != PREFIXED and acl.resource_name == entry.resource_name",
            "return acl.resource_name == entry.resource_name",
        ),
        (
            "a denial within a prefix is overlooked",
            "if _covers(entry, acl) or not _is_name(acl):",
            "if _covers(entry, acl):",
        ),
    ),
    *_POLICIES.edits(
        (
            "a reader may write objects",
            "rows = (row for row in table if role in row.roles and row.resource is resource)",
            "rows = (row for row in table if row.resource is resource)",
        ),
        (
            "a policy reaches the objects of every prefix",
            "return f\"{bucket}/{with_prefix(letters, '*')}\"",
            "return f\"{bucket}/{with_prefix('', '*')}\"",
        ),
        (
            "an asterisk in a prefix stands for other prefixes",
            'letters = self.prefix.replace("*", "${*}")',
            'letters = self.prefix.replace("*", "*" + "")',
        ),
        (
            "a policy of a bucket lets everybody in",
            '{"Principal": {"AWS": [principal]}}',
            '{"Principal": "*"}',
        ),
    ),
    *_PRINCIPALS.edits(
        (
            "a policy of a bucket names a principal that is nobody",
            "    if not _PRINCIPAL.fullmatch(principal):\n",
            "    if not principal:\n",
        ),
    ),
    *_RECORDED.edits(
        (
            "a service may not abort what a failed copy has left",
            '("AbortMultipartUpload", "s3:AbortMultipartUpload", "uploads.py", _UPLOADS_STAY)',
            '("AbortMultipartUpload", "s3:PutObject", "uploads.py", _UPLOADS_STAY)',
        ),
    ),
    *_SWEEPS.edits(
        (
            "a reader's plugin looks for leftovers, for which it has no right",
            "if store.sweep is None or grace_ms >= SWEEP_NEVER_MS:",
            "if store.sweep is None:",
        ),
    ),
    *_COMMAND.edits(
        (
            "a check that finds something says that all is well",
            "    return EXIT_MISSING\n",
            "    return 0\n",
        ),
    ),
)
