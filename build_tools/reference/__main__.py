"""`python -m build_tools.reference`: write every generated page."""

from build_tools.locks import ROOT
from build_tools.reference.pages import GENERATED

if __name__ == "__main__":
    for name, generate in GENERATED.items():
        (ROOT / name).write_text(generate(), encoding="utf-8")
        print(name)
