"""Prints the lines of each folder of src/, of each crate, and of what stands beside it: of code without tests, and of tests. Blank lines and comments count.

    python3 docs/size.py

Run it from the root. Tests are what stands behind `#[cfg(test)]`, and files that it declares.
"""
import pathlib
import re

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


rows = {str(folder): list(folder.rglob("*.rs")) for folder in [*pathlib.Path("src").iterdir(), *pathlib.Path("crates").iterdir()] if folder.is_dir()}
rows["src/*.rs"] = list(pathlib.Path("src").glob("*.rs"))
tests = {test for root in ("src", "crates") for test in tests_of(pathlib.Path(root))}
sizes = {name: size(files, tests) for name, files in rows.items()}
print("| folder | code | tests |\n|---|---|---|")
for name, (code, test) in sorted(sizes.items(), key=lambda row: -sum(row[1])):
    print(f"| `{name}` | {code:,} | {test:,} |")
print(f"| all of `src/` and `crates/` | {sum(code for code, _ in sizes.values()):,} | {sum(test for _, test in sizes.values()):,} |")
for name in ("lab", "benches", "examples"):
    print(f"| `{name}` | {sum(size(pathlib.Path(name).rglob('*.rs'), tests)):,} | |")
print(f"| `tests` (Rust) | | {sum(size(pathlib.Path('tests').rglob('*.rs'), tests)):,} |")
print(f"| `tests/real` (scripts) | | {sum(file.read_text().count(chr(10)) for file in pathlib.Path('tests/real').rglob('*') if file.suffix in ('.sh', '.py')):,} |")
