"""Prints the lines of each folder of src/ and of crates/session, of each other crate, and of what stands beside it: of code without tests, and of tests. Blank lines and comments count.

    python3 docs/size.py [--write]

Run it from the root. With --write, the rows of the table in docs/development.md get these figures and keep their reasons. Tests are what stands behind `#[cfg(test)]`, and files that it declares.
"""
import pathlib
import re
import sys

TESTS = re.compile(r"#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([a-z]+\))? )?(?:mod (\w+);|mod \w+ \{)")


def tests_of(root):
    """The files and folders below a root that are declared as tests."""
    for file in root.rglob("*.rs"):
        folder = file.parent if file.name in ("lib.rs", "mod.rs", "main.rs") else file.with_suffix("")
        for declared in TESTS.finditer(file.read_text()):
            if declared[1]:
                yield from (folder / f"{declared[1]}.rs", folder / declared[1])


def lines(text):
    """Lines of code and of tests: a module of tests is the last thing in its file."""
    begun = next((found.start() for found in TESTS.finditer(text) if not found[1]), len(text))
    return text[:begun].count("\n"), text[begun:].count("\n")


def size(files, tests):
    code = test = 0
    for file in files:
        ours, theirs = lines(file.read_text())
        if any(file == known or known in file.parents for known in tests):
            ours, theirs = 0, ours + theirs
        code, test = code + ours, test + theirs
    return code, test


session = pathlib.Path("crates/session/src")
folders = [folder for place in ("src", "crates", session) for folder in pathlib.Path(place).iterdir() if folder.is_dir() and folder != session.parent]
rows = {str(folder): list(folder.rglob("*.rs")) for folder in folders}
rows["crates/session/src/*.rs"] = list(session.glob("*.rs"))
rows["src/*.rs"] = list(pathlib.Path("src").glob("*.rs"))
tests = {test for root in ("src", "crates") for test in tests_of(pathlib.Path(root))}
sizes = {name: size(files, tests) for name, files in rows.items()}
made = {f"`{name}`": size for name, size in sizes.items()}
made["all of `src/` and `crates/`"] = tuple(sum(each) for each in zip(*sizes.values()))
beside = {name: sum(size(pathlib.Path(name).rglob("*.rs"), tests)) for name in ("lab", "benches", "examples", "tests")}
scripts = sum(file.read_text().count("\n") for file in pathlib.Path("tests/real").rglob("*") if file.suffix in (".sh", ".py"))
made["`lab`, `benches`, `examples`"] = (sum(beside[name] for name in ("lab", "benches", "examples")), None)
made["`tests` (Rust)"] = (None, beside["tests"])
made["`tests/real` (scripts)"] = (None, scripts)


def row(name, reason=""):
    cells = " | ".join("" if lines is None else f"{lines:,}" for lines in made[name])
    return re.sub(" +", " ", f"| {name} | {cells} | {reason} |")


def renewed(line):
    found = re.match(r"\| ([^|]+) \|[^|]*\|[^|]*\| ?(.*?) ?\|$", line)
    return row(found[1], found[2]) if found and found[1] in made else line


if "--write" in sys.argv:
    page = pathlib.Path("docs/development.md")
    page.write_text("".join(renewed(line) + "\n" for line in page.read_text().splitlines()))
else:
    print("| folder | code | tests | why a large one is that large |\n|---|---|---|---|")
    for name in sorted(made, key=lambda name: -sum(lines or 0 for lines in made[name])):
        print(row(name))
