"""Planted bugs in secured sandboxes: a principal may more than it should, or a secret is seen."""

from collections.abc import Iterator

from tests.mutants.edits import Edit, Target

_SECURITY = "rlm_sandbox/security/"


def _of(file: str, hazard: str, old: str, new: str) -> Iterator[Edit]:
    return Target(file, ("tests/sandbox/test_security_plans.py",)).edits((hazard, old, new))


EDITS: tuple[Edit, ...] = (
    *_of(
        f"{_SECURITY}listeners.py",
        "the authorizer allows what no ACL names",
        '"allow.everyone.if.no.acl.found": "false"',
        '"allow.everyone.if.no.acl.found": "true"',
    ),
    *_of(
        f"{_SECURITY}listeners.py",
        "in mtls a client needs no certificate",
        'auth = "required" if client_auth else "none"',
        'auth = "requested" if client_auth else "none"',
    ),
    *_of(
        f"{_SECURITY}listeners.py",
        "TIERED takes clients without identity",
        'tiered = "SASL_SSL" if has_tls(of_clients) else of_clients',
        'tiered = "PLAINTEXT"',
    ),
    *_of(
        f"{_SECURITY}principals.py",
        "everybody can read the passwords",
        'json.dumps(content, indent=1) + "\\n", private=True',
        'json.dumps(content, indent=1) + "\\n"',
    ),
    *_of(
        f"{_SECURITY}certificates.py",
        "everybody can read the keys of clients",
        "write_atomically(key, issued.key, private=True)",
        "write_atomically(key, issued.key)",
    ),
    *_of(
        "rlm_sandbox/document.py",
        "passwords are printed",
        'if name != "password"',
        'if name != "passwords"',
    ),
    *_of(
        "rlm_sandbox/kafka_dist.py",
        "passwords are on a command line",
        'command = [command[0], f"@{argument_file}"]',
        "command = list(command)",
    ),
    *_of(
        f"{_SECURITY}acls.py",
        "the reader may write",
        '_grants(READER, "Topic", "*", "Read", "Describe")',
        '_grants(READER, "Topic", "*", "Read", "Describe", "Write")',
    ),
)
