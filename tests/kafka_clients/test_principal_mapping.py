"""Rules that make principals of certificates: Kafka's own cases (SslPrincipalMapperTest), what Java
does besides, and what is refused because Python would read it in another way.
"""

import pytest

from kafka_clients.principal_mapping import PrincipalMapping
from kip405.errors import Invalid

KAFKAS_VALID = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
)
KAFKAS_INVALID = (
    "default",
    "DEFAUL",
    "DEFAULT/L",
    "DEFAULT/U",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
)
KAFKAS_RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)
KAFKAS_SPLITTING = (
    ("[]", ""),
    ("[DEFAULT]", "DEFAULT"),
    ("[RULE:/]", "RULE://"),
    ("[RULE:/.*]", "RULE:/.*/"),
    ("[RULE:/.*/L]", "RULE:/.*/L"),
    ("[RULE:/, DEFAULT]", "RULE://,DEFAULT"),
    ("[RULE:/, DEFAULT]", "  RULE:// ,  DEFAULT  "),
    ("[RULE:   /     , DEFAULT]", "  RULE:   /     / ,  DEFAULT  "),
    ("[RULE:  /     /U, DEFAULT]", "  RULE:  /     /U   ,DEFAULT  "),
    (
        "[RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT]",
        "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
    ),
    ("[]", ",   , , ,      , , ,   "),
    ("[RULE:/, DEFAULT]", ",,RULE://,,,DEFAULT,,"),
    ("[RULE: /   , DEFAULT]", ",  , RULE: /   /    ,,,   DEFAULT, ,   "),
    ("[RULE:   /  /U, DEFAULT]", "     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,"),
    (r"[RULE:\/\\\(\)\n\t/\/\/]", r"RULE:\/\\\(\)\n\t/\/\//"),
    (r"[RULE:\**\/+/*/L, RULE:\/*\**/**]", r"RULE:\**\/+/*/L,RULE:\/*\**/**/"),
    (
        "[RULE:,RULE:,/,RULE:,\\//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, RULE:, DEFAULT, "
        "/DEFAULT, DEFAULT]",
        "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, "
        "/DEFAULT/,DEFAULT",
    ),
)


@pytest.mark.parametrize("rules", KAFKAS_VALID)
def test_kafkas_valid_rules(rules: str) -> None:
    assert PrincipalMapping(rules).texts


@pytest.mark.parametrize("rules", KAFKAS_INVALID)
def test_kafkas_invalid_rules(rules: str) -> None:
    with pytest.raises(Invalid, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


@pytest.mark.parametrize(("shown", "rules"), KAFKAS_SPLITTING)
def test_kafkas_splitting(shown: str, rules: str) -> None:
    assert f"[{', '.join(PrincipalMapping(rules).texts)}]" == shown


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_kafkas_names(subject: str, name: str) -> None:
    assert PrincipalMapping(KAFKAS_RULES).principal(subject) == name


def test_kafkas_comma_with_whitespace() -> None:
    mapping = PrincipalMapping(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert mapping.principal(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (None, "CN=a", "CN=a"),
        ("RULE:^CN=x$/y/", "CN=a", None),
        ("", "CN=a", None),
        (r"RULE:CN=(\w+)/$1/", "CN=a,O=b", None),
        # A group that is not there is text; of $12 with one group, the 2 is text.
        ("RULE:^CN=(.*)$/$1@$4/", "CN=a", "a@$4"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
        ("RULE:^CN=(?<name>.*)$/${name}!/", "CN=a", "a!"),
        (r"RULE:^CN=(.*)$/\$1\\/", "CN=a", "$1\\"),
        ("RULE:^(a)|(b)$/[$1$2]/", "b", "[b]"),
        # What is found is replaced, which need not be the whole.
        ("RULE:CN=(.*?)/$1/", "CN=abc", "abc"),
        ("RULE:.*/x/", "CN=abc", "xx"),
        (r"RULE:\QCN=\E(\w+)\z/$1/", "CN=a", "a"),
        (r"RULE:^CN=([^,]++),.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:(?i)^cn=(.*)$/$1/U", "CN=straße", "STRASSE"),
        # Java's \w is ASCII.
        (r"RULE:^CN=(\w+)$/$1/", "CN=ä", None),
        ("RULE:^CN=(.*)$//", "CN=a", ""),
        ("DEFAULT", "CN=a\nCN=admin", None),
    ],
)
def test_as_java_has_it(rules: str | None, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).principal(subject) == name


@pytest.mark.parametrize("replacement", ["$1", "a$", r"a\\\$b$x", "${name}"])
def test_a_replacement_that_java_refuses_names_nobody(replacement: str) -> None:
    mapping = PrincipalMapping(f"RULE:^CN=.*$/{replacement}/")
    assert mapping.principal("O=a") is None
    with pytest.raises(Invalid, match="names a group that is not there"):
        mapping.principal("CN=a")


@pytest.mark.parametrize(
    "pattern",
    [
        r"CN=\p{Alpha}+",
        r"CN=[a-z&&[^b]]+",
        r"CN=[a-z[A-Z]]+",
        r"CN=a\Z",
        r"CN=\h",
        r"CN=(?m)a",
        r"(?x) CN=a",
        r"CN=(?P<n>a)",
        r"CN=(a",
        r"CN=[]a]",
        r"CN=(?<=a*)b",
        r"CN=\07",
        r"CN=[\0]",
        r"CN=\b(\w+)\b.*",
        r"CN=\B.*",
        r"CN=[\b]",
        r"CN=[\A]",
    ],
)
def test_h23_a_pattern_that_python_may_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="another way than in Java"):
        PrincipalMapping(f"RULE:{pattern}/x/")
