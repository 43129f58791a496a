//! Units of systemd and quadlets of Podman as a tree: sections, their keys, and each value as it is written, continued lines included.

use std::ops::Range;

use crate::yaml::{Kind, Node, Style};

/// Whether a text is a unit: its first line says which section begins.
pub fn is_unit(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    lines.next().is_some_and(|line| ["[Unit]", "[Service]", "[Container]", "[Install]"].contains(&line))
}

/// The tree of a unit. A key that stands several times in its section has a list.
pub fn parse(text: &str) -> Node {
    let mut sections: Vec<(Node, Node)> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (start, line) = (at, line_at(text, at));
        at += line.len();
        let written = line.trim();
        if let Some(name) = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if !sections.iter().any(|(key, _)| key.text() == Some(name)) {
                let key = scalar(name, start..start + line.trim_end().len());
                sections.push((key, node(start..start, Kind::Mapping { entries: Vec::new(), flow: false })));
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !written.starts_with(['#', ';'])) else { continue };
        let from = start + key.len() + 1 + (value.len() - value.trim_start_matches([' ', '\t']).len());
        while text[..at].trim_end_matches(['\r', '\n']).ends_with('\\') && at < text.len() {
            at += line_at(text, at).len();
        }
        let until = from.max(text[..at].trim_end().len());
        let value = scalar(&text[from..until], from..until);
        if let Some((_, section)) = sections.last_mut() {
            put(section, scalar(key.trim(), start..start + key.trim_end().len()), value);
        }
    }
    node(0..text.len(), Kind::Mapping { entries: sections, flow: false })
}

fn line_at(text: &str, at: usize) -> &str {
    text[at..].split_inclusive('\n').next().unwrap_or_default()
}

fn put(section: &mut Node, key: Node, value: Node) {
    let Kind::Mapping { entries, .. } = &mut section.kind else { return };
    let Some((_, there)) = entries.iter_mut().find(|(known, _)| known.text() == key.text()) else {
        entries.push((key, value));
        return;
    };
    if let Kind::Sequence { items, .. } = &mut there.kind {
        items.push(value);
    } else {
        let span = there.span.start..value.span.end;
        let items = vec![there.clone(), value];
        *there = node(span, Kind::Sequence { items, flow: false });
    }
}

fn node(span: Range<usize>, kind: Kind) -> Node {
    Node { span, kind, anchor: None, tag: None }
}

/// A text as it stands in its file.
pub fn scalar(text: &str, span: Range<usize>) -> Node {
    node(span, Kind::Scalar { text: text.to_owned(), style: Style::Plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_continued_values_are_found() {
        let text = "# a unit\n[Unit]\nDescription=x\n[Service]\nExecStart=\nExecStart = /bin/vllm serve m \\\n  --x 1\n; note=1\nRestart=no";
        assert!(is_unit(text) && !is_unit("a: [Unit]\n"));
        let root = parse(text);
        let starts = root.get("Service").unwrap().get("ExecStart").unwrap().items();
        assert_eq!(starts[0].text(), Some(""));
        assert_eq!(starts[1].text(), Some("/bin/vllm serve m \\\n  --x 1"));
        assert_eq!(&text[starts[1].span.clone()], starts[1].text().unwrap());
        assert_eq!(root.get("Service").unwrap().entries().len(), 2);
    }
}
