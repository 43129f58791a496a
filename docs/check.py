"""Checks the documents without a program: links, that the program says what troubleshooting.md quotes and a test expects it, the tests that security.md names, the page that is made from the schema, and that no sentence has more than 25 words.

    python3 docs/check.py

Run it from the root. It names every fault, and its exit status is 1 where there is one.
"""
import os
import pathlib
import re
import subprocess
import sys

wrong = []
if len(pathlib.Path("README.md").read_text().splitlines()) > 150:
    wrong.append("README.md has more than 150 lines")
if subprocess.run([sys.executable, "docs/space-file.py", "--check"]).returncode:
    wrong.append("docs/space-file.md is not what docs/space-file.py makes of the schema")
pages = {page.resolve(): page.read_text() for page in [*pathlib.Path().glob("*.md"), *pathlib.Path("docs").glob("*.md"), *pathlib.Path("crates").glob("*/README.md")]}
prose = {page: re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for page, text in pages.items()}
anchor = lambda title: re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")
anchors = {page: {anchor(t) for t in re.findall(r"^#+ (.*)$", text, re.M)} for page, text in prose.items()}
for page, text in prose.items():
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        file, _, name = link.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (name and name not in anchors.get(there, {name})):
            wrong.append(f"{page.name}: the link {link} leads nowhere")
# The program's words and those that tests expect, without what stands between: placeholders, numbers, and where one message quotes another.
TESTS = re.compile(r"#\[cfg\(test\)\]\n(?:pub\S* )?mod (\w+)(;| \{)")
source, tests = "", "".join(file.read_text() for file in pathlib.Path("tests").rglob("*.rs"))
files = {file: file.read_text() for file in sorted([*pathlib.Path("src").rglob("*.rs"), *pathlib.Path("crates").rglob("*.rs")])}
own = set()  # files and folders that are compiled for tests alone
for file, text in files.items():
    for name, end in TESTS.findall(text):
        folder = file.parent if file.stem in ("mod", "lib", "main") else file.with_suffix("")
        own |= {folder / name, folder / f"{name}.rs"} if end == ";" else set()
for file, text in files.items():
    inside = next((found.start() for found in TESTS.finditer(text) if found[2] != ";"), len(text))
    inside = 0 if own & {file, *file.parents} else inside
    source, tests = source + text[:inside], tests + text[inside:]
functions = set(re.findall(r"fn (\w+)\(", tests))
words = lambda text: re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", text)).replace("`", "")
source, tests = words(source), words(tests)
table = [line for line in pages[pathlib.Path("docs/troubleshooting.md").resolve()].splitlines() if line.startswith("| ")]
for line in table:
    for message in re.findall(r"`([^`]*)`", line.split(" | ")[0]):
        if message.startswith("--"):
            continue
        parts = [part.strip(" .,()") for part in re.split(r"…|\d+ ?%?|[:;] ", message)]
        for part in parts:
            if len(part) >= 16 and part not in source + tests:
                wrong.append(f"troubleshooting.md: the program does not say: {part}")
        if len(max(parts, key=len)) >= 8 and not any(len(part) >= 8 and part in tests for part in parts):
            wrong.append(f"troubleshooting.md: no test expects: {message}")
for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", pages[pathlib.Path("docs/security.md").resolve()]):
    if name not in functions:
        wrong.append(f"security.md: there is no test {name}")


def sentences(file, text):
    """The sentences of a page without its tables and code, or of the comments of a Rust file, each with the line where its paragraph begins."""
    begun, paragraph, is_code = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if file.suffix == ".rs":
            comment = re.match(r"\s*//[/!]? ?(.*)", line)
            line = comment[1] if comment else ""
        is_code ^= line.lstrip().startswith("```")
        ends = is_code or not line.strip() or line.startswith(("|", "#", "    ", "```"))
        if paragraph and (ends or re.match(r"\s*([*-]|\d+\.) ", line)):
            prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`|\$[^$]*\$", "CODE", " ".join(paragraph)))
            yield from ((begun, sentence) for sentence in re.split(r"(?<=[.!?:;])[*)\"]*\s+", prose))
            paragraph = []
        if not ends:
            begun = begun if paragraph else number
            paragraph.append(line.strip())


sources = [pathlib.Path(file) for folder in ("src", "crates", "lab", "benches", "examples", "tests") for file in sorted(pathlib.Path(folder).rglob("*.rs"))]
results = pathlib.Path("results").glob("*/README.md")
for file, text in [*pages.items(), *((file, file.read_text()) for file in [*results, *sources])]:
    for line, sentence in sentences(file, text):
        if len(re.findall(r"[\w%.,'’-]*\w[\w%.,'’-]*", sentence)) > 25:
            wrong.append(f"{os.path.relpath(file)}:{line}: a sentence of more than 25 words: {sentence}")
sys.exit("\n".join(wrong) or 0)
