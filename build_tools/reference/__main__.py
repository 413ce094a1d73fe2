"""`python -m build_tools.reference`: write every generated page."""

from build_tools.locks import ROOT
from build_tools.reference.pages import GENERATED, generate

if __name__ == "__main__":
    for name in GENERATED:
        (ROOT / name).write_text(generate(name), encoding="utf-8")
        print(name)
