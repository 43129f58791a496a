#!/usr/bin/env python3
"""A copy of a model's folder whose tokenizer knows the words of drawn prompts: dynamo_words.py MODEL-FOLDER NEW-FOLDER

A tokenizer without them makes one unknown token of each: every prompt is the same, and every cache holds it. The tokenizer is one of whole words.
"""
import json, pathlib, re, shutil, sys

model, own = map(pathlib.Path, sys.argv[1:])
shutil.copytree(model, own)
source = pathlib.Path(__file__).parents[2] / "crates/workload/src/vocabulary.rs"
text = re.search(r'const WORDS: &str = "(.*?)";', source.read_text(), re.S)[1]
tokenizer = json.loads((own / "tokenizer.json").read_text())
ids = tokenizer["model"]["vocab"]
new = [word for word in dict.fromkeys(text.replace("\\\n", "").split()) if word not in ids]
for old, word in zip([word for word in ids if not word.startswith("<")], new):
    ids[word] = ids.pop(old)
(own / "tokenizer.json").write_text(json.dumps(tokenizer))
