"""Checks the documents without a program: links, the messages that troubleshooting.md quotes, the tests that security.md names, the page that is made from the schema.

    python3 docs/check.py

Run it from the root. It names every fault, and its exit status is 1 where there is one.
"""
import pathlib
import re
import subprocess
import sys

wrong = []
if len(pathlib.Path("README.md").read_text().splitlines()) > 150:
    wrong.append("README.md has more than 150 lines")
if subprocess.run([sys.executable, "docs/space-file.py", "--check"]).returncode:
    wrong.append("docs/space-file.md is not what docs/space-file.py makes of the schema")
pages = {page.resolve(): page.read_text() for page in [*pathlib.Path().glob("*.md"), *pathlib.Path("docs").glob("*.md")]}
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
# The program's own words, without what stands between: placeholders, numbers, and where one message quotes another.
source = "".join(file.read_text() for file in pathlib.Path("src").rglob("*.rs"))
source = re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", source)).replace("`", "")
table = [line for line in pages[pathlib.Path("docs/troubleshooting.md").resolve()].splitlines() if line.startswith("| ")]
for line in table:
    for message in re.findall(r"`([^`]*)`", line.split(" | ")[0]):
        for words in re.split(r"…|\d+ ?%?|[:;] ", message):
            if len(words.strip(" .,()")) >= 16 and words.strip(" .,()") not in source:
                wrong.append(f"troubleshooting.md: the program does not say: {words.strip()}")
tests = "".join(file.read_text() for folder in ("src", "tests") for file in pathlib.Path(folder).rglob("*.rs"))
for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", pages[pathlib.Path("docs/security.md").resolve()]):
    if f"fn {name}(" not in tests:
        wrong.append(f"security.md: there is no test {name}")
sys.exit("\n".join(wrong) or 0)
