"""The page of rights at the API: words of a principals file, operations of Kafka, methods."""

from rlm.api.method_rights import METHOD_RULES
from rlm.plans.api_rights import GIVEN_BY, KAFKA_OPERATION, MEANING, ApiRight


def generate_docs() -> str:
    """The whole text of docs/reference/api-rights.md."""
    head = (
        "# Rights at the API\n\n"
        "What a caller of the gRPC API may do where `api.authorization` is `file` or `kafka`; "
        "[security](../security.md#rights-at-the-api) says how callers are known. Made from "
        "`rlm/plans/api_rights.py` and `rlm/api/method_rights.py`; edit there.\n\n"
        "## The rights\n\n"
        "A right is one on a topic. A call about the whole cluster needs it on every topic: `*` in "
        "a principals file, Topic `*` in Kafka's ACLs, without a denial of any topic.\n\n"
        "| right | what it is for | words of api.principals.file | operation on the topic, with "
        "`kafka` |\n|---|---|---|---|\n"
    )
    methods = (
        "\n## The methods\n\n"
        'The column "audit" has "yes" where a call changes something and leaves a line in the '
        "audit log.\n\n"
        "| service | method | right | audit |\n|---|---|---|---|\n"
    )
    return head + "".join(map(_right, ApiRight)) + methods + "".join(map(_method, METHOD_RULES))


def _right(right: ApiRight) -> str:
    words = ", ".join(f"`{grant.value}`" for grant, rights in GIVEN_BY.items() if right in rights)
    return f"| {right.value} | {MEANING[right]} | {words} | {KAFKA_OPERATION[right]} |\n"


def _method(name: str) -> str:
    _, service, method = name.split("/")
    rule = METHOD_RULES[name]
    audit = "yes" if rule.may_change else ""
    return f"| {service.rpartition('.')[2]} | `{method}` | {rule.words} | {audit} |\n"
