//! Rules of ARCHITECTURE.md that no compiler checks: permitted dependencies between crates, no
//! circular imports between files, places of unsafe code, and links in documents.

use kiln_tests::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates on which a crate must not depend; its tests may.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("parallel", ABOVE_FORMAT),
    ("output", ABOVE_FORMAT),
    ("format", ABOVE_FORMAT),
    ("shuffle", &["kiln"]),
    ("signature", &["kiln"]),
    ("digest", &["kiln"]),
    (
        "tree",
        &[
            "kiln-output",
            "kiln-parallel",
            "kiln-codec",
            "kiln-read",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-sink",
            "kiln-mount",
            "kiln-delta",
        ],
    ),
    (
        "codec",
        &[
            "kiln-tree",
            "kiln-read",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-sink",
            "kiln-mount",
            "kiln-delta",
        ],
    ),
    (
        "read",
        &[
            "kiln-tree",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-sink",
            "kiln-mount",
            "kiln-delta",
        ],
    ),
    ("builder", &["kiln-read", "kiln-source", "kiln-revise", "kiln-diff", "kiln-sink", "kiln-mount", "kiln-delta"]),
    ("sink", &["kiln-builder", "kiln-source", "kiln-revise", "kiln-diff", "kiln-mount", "kiln-delta"]),
    ("mount", &["kiln-tree", "kiln-builder", "kiln-source", "kiln-revise", "kiln-diff", "kiln-sink", "kiln-delta"]),
    ("source", &["kiln-builder", "kiln-revise", "kiln-diff", "kiln-sink", "kiln-mount", "kiln-delta"]),
    ("revise", &["kiln-delta", "kiln-sink", "kiln-mount"]),
    ("diff", &["kiln-read", "kiln-builder", "kiln-source", "kiln-revise", "kiln-sink", "kiln-mount", "kiln-delta"]),
    (
        "verity",
        &[
            "kiln-tree",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-sink",
            "kiln-mount",
            "kiln-delta",
        ],
    ),
    ("delta", &["kiln-source", "kiln-revise", "kiln-diff", "kiln-sink", "kiln-mount"]),
    (
        "composefs",
        &[
            "kiln-output",
            "kiln-codec",
            "kiln-read",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-delta",
            "kiln-sink",
            "kiln-mount",
            "kiln-composefs-store",
        ],
    ),
    (
        "composefs-store",
        &[
            "kiln-codec",
            "kiln-read",
            "kiln-builder",
            "kiln-source",
            "kiln-revise",
            "kiln-diff",
            "kiln-delta",
            "kiln-sink",
            "kiln-mount",
        ],
    ),
];

/// Crates that the lowest ones must not depend on.
const ABOVE_FORMAT: &[&str] = &[
    "kiln-tree",
    "kiln-codec",
    "kiln-read",
    "kiln-builder",
    "kiln-source",
    "kiln-revise",
    "kiln-diff",
    "kiln-delta",
    "kiln-sink",
    "kiln-mount",
];

/// Files that may have unsafe code.
const UNSAFE: &[&str] = &[
    "capi/src/error.rs",
    "capi/src/image.rs",
    "capi/src/lib.rs",
    "capi/src/pack.rs",
    "cli/src/pack/output/inherited.rs",
    "cli/src/process/fork.rs",
    "cli/src/process/kept_blocks.rs",
    "cli/src/process/memory.rs",
    "cli/src/run/namespaces.rs",
    "cli/src/run/program.rs",
    "cli/src/run/waiting.rs",
    "codec/src/deflate/decode.rs",
    "codec/src/deflate/libdeflate.rs",
    "codec/src/deflate/matches.rs",
    "codec/src/lz4.rs",
    "codec/src/lzma.rs",
    "codec/src/words.rs",
    "codec/src/zstd/decode.rs",
    "codec/src/zstd/matches.rs",
    "codec/src/zstd/parse.rs",
    "codec/src/zstd/row_table.rs",
    "codec/src/zstd/rows.rs",
    "codec/src/zstd/stream.rs",
    "codec/src/zstd/text.rs",
    "codec/src/zstd/tokens.rs",
    "codec/src/zstd.rs",
    "composefs-store/src/protect.rs",
    "mount/src/fuse/ask.rs",
    "mount/src/fuse/threads/descriptors.rs",
    "mount/src/heap.rs",
    "mount/src/kernel/calls.rs",
    "mount/src/kernel/loop_device.rs",
    "mount/src/program.rs",
    "python/src/arguments/buffer.rs",
    "python/src/image/open.rs",
    "python/src/index/stored.rs",
    "python/src/memory.rs",
    "read/src/cache/fork_local.rs",
    "read/src/source/mapped.rs",
    "source/src/dir/xattrs.rs",
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns all files below `dir` whose names have this suffix, sorted.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut todo = vec![dir.to_owned()];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let (path, file_type) = (entry.path(), entry.file_type().unwrap());
            match file_type.is_dir() {
                true if !matches!(entry.file_name().to_str(), Some("target" | ".git")) => todo.push(path),
                false if path.to_str().is_some_and(|path| path.ends_with(end)) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns the paths of a `use` tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        return paths.push(format!("{prefix}{tree}"));
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let inner = &tree[open + 1..tree.rfind('}').unwrap()];
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &inner[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        expand(&prefix, &inner[start..], paths);
    }
}

/// Returns the modules that a module's code imports from its own crate, without tests.
fn imports(module: &str, source: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let is_tests = |at: &usize| source[*at..].lines().take(3).any(|line| line.contains("mod tests"));
    let tests = source.match_indices("#[cfg(test)]").map(|(at, _)| at).find(is_tests);
    let product = &source[..tests.unwrap_or(source.len())];
    let code: Vec<&str> = product.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for at in code.match_indices("use ").map(|(at, _)| at + "use ".len()) {
        let statement = code[at..].split(';').next().unwrap();
        if ["crate::", "super::", "self::"].iter().any(|start| statement.starts_with(start)) {
            expand("", statement, &mut paths);
        }
    }
    // Paths within the code, such as `super::selection::join(…)`.
    for line in code.lines().filter(|line| !line.contains("use ") && !line.contains("pub(in ")) {
        for (at, start) in line.match_indices("crate::").chain(line.match_indices("super::")) {
            let is_whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'));
            let end = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':');
            let path = line[at..].split(end).next().unwrap().trim_end_matches(':');
            paths.extend((is_whole && path.len() > start.len()).then(|| path.to_owned()));
        }
    }
    let mut found = BTreeSet::new();
    for path in paths {
        let mut base: Vec<&str> = module.split("::").collect();
        let mut rest: Vec<&str> = path.split("::").map(str::trim).collect();
        match rest.remove(0) {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            _ => {}
        }
        while rest.first() == Some(&"super") {
            rest.remove(0);
            base.pop();
        }
        base.extend(rest.iter().filter(|name| **name != "self"));
        let prefixes = (1..=base.len()).rev().map(|len| base[..len].join("::"));
        let target = prefixes.into_iter().find(|prefix| modules.contains_key(prefix));
        found.extend(target.filter(|target| target != module));
    }
    found
}

/// Returns a circle of a graph, if there is one: each element imports the next, and the last the
/// first.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    // Elements that import none of the rest cannot be in a circle.
    let mut left = graph.clone();
    loop {
        let ends: Vec<String> = left
            .iter()
            .filter(|(_, targets)| targets.iter().all(|target| !left.contains_key(target)))
            .map(|(module, _)| module.clone())
            .collect();
        if ends.is_empty() {
            break;
        }
        ends.iter().for_each(|end| drop(left.remove(end)));
    }
    let mut path = vec![left.keys().next()?.clone()];
    loop {
        let next = left[path.last().unwrap()].iter().find(|target| left.contains_key(*target)).unwrap().clone();
        if let Some(at) = path.iter().position(|module| *module == next) {
            return Some(path.split_off(at));
        }
        path.push(next);
    }
}

#[test]
fn files_import_each_other_in_one_direction() {
    for (name, _) in FORBIDDEN.iter().chain(&[("kilnfs", &[] as &[&str]), ("cli", &[]), ("python", &[])]) {
        let src = project().join("crates").join(name).join("src");
        let modules: BTreeMap<String, String> = files(&src, ".rs")
            .into_iter()
            .map(|path| {
                let relative = path.strip_prefix(&src).unwrap().with_extension("");
                let module = relative.to_str().unwrap().replace('/', "::");
                let module = module.strip_suffix("::mod").unwrap_or(&module);
                (module.to_owned(), fs::read_to_string(&path).unwrap())
            })
            .filter(|(module, _)| !matches!(&**module, "lib" | "main") && !module.ends_with("tests"))
            .collect();
        assert!(modules.len() > 1, "{name}");
        let graph = modules.iter().map(|(module, source)| (module.clone(), imports(module, source, &modules)));
        let graph: BTreeMap<_, _> = graph.collect();
        let is_small = modules.len() < 4;
        assert!(is_small || graph.values().any(|targets| !targets.is_empty()), "{name}: no import was found");
        assert_eq!(circle(&graph), None, "{name}");
    }
}

#[test]
fn circles_are_found() {
    let modules: BTreeMap<String, String> =
        [("a", "use crate::b::X;"), ("b", "use super::c::{self, Y};"), ("c", "use crate::a::{d::Z, W};"), ("e", "")]
            .map(|(module, source)| (module.to_owned(), source.to_owned()))
            .into();
    let graph = modules.iter().map(|(module, source)| (module.clone(), imports(module, source, &modules))).collect();
    assert_eq!(circle(&graph), Some(["a", "b", "c"].map(String::from).to_vec()));
}

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    for (name, forbidden) in FORBIDDEN {
        let manifest = fs::read_to_string(project().join("crates").join(name).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap();
        for other in *forbidden {
            assert!(!dependencies.lines().any(|line| line.starts_with(other)), "{name} depends on {other}");
        }
    }
}

#[test]
fn unsafe_code_stands_where_it_is_allowed() {
    let crates = project().join("crates");
    let has_unsafe = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        code.into_iter().any(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe"))
    };
    let found = files(&crates, ".rs").into_iter().filter(has_unsafe);
    let found = found.map(|path| path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned());
    let found: Vec<_> = found.filter(|path| path.contains("/src/")).collect();
    assert_eq!(found, UNSAFE);
}

/// The documentation of `codec` names exactly its modules with unsafe code.
#[test]
fn codec_says_where_its_unsafe_code_stands() {
    let source = fs::read_to_string(project().join("crates/codec/src/lib.rs")).unwrap();
    let docs: String = source.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let (_, list) = docs.split_once("`unsafe` occurs in").unwrap();
    let said: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(String::from).collect();
    let module = |path: &str| {
        let path = path.strip_prefix("codec/src/")?.strip_suffix(".rs")?;
        Some(path.strip_suffix("/mod").unwrap_or(path).replace('/', "::"))
    };
    assert_eq!(said, UNSAFE.iter().filter_map(|path| module(path)).collect());
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        found.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
    }
    found
}

#[test]
fn links_in_documents_are_valid() {
    let project = project();
    let mut links = 0;
    for document in files(&project, ".md") {
        let text = fs::read_to_string(&document).unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text[at..].split_at(2)) {
            let link = rest.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link}", document.display());
            let is_document = target.extension().is_some_and(|extension| extension == "md");
            if is_document && !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: {link}", document.display());
            }
            links += 1;
        }
    }
    assert!(links > 5);
}

/// The README's example is that of the library `kiln`, which is compiled and run.
#[test]
fn the_readme_shows_compiled_code() {
    let readme = fs::read_to_string(project().join("README.md")).unwrap();
    let library = fs::read_to_string(project().join("crates/kilnfs/src/lib.rs")).unwrap();
    let (_, example) = readme.split_once("```rust\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    for line in example.lines().filter(|line| !line.is_empty()) {
        assert!(library.contains(&format!("//! {line}\n")), "{line}");
    }
}

/// Maximum number of files in the `src` of a crate that have no folder of their name: modules without
/// children.
const FLAT_MAX: usize = 14;

#[test]
fn crates_are_folders_of_folders() {
    for entry in fs::read_dir(project().join("crates")).unwrap() {
        let src = entry.unwrap().path().join("src");
        let names = fs::read_dir(&src).unwrap().map(|entry| entry.unwrap().path());
        let files = names.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let flat = files.filter(|path| !path.with_extension("").is_dir()).count();
        assert!(flat <= FLAT_MAX, "{}: {flat} files", src.display());
    }
}

/// The pages of results, the README's table and its chart equal the output of `bench/report` for the
/// stored results.
#[test]
fn results_are_as_they_were_measured() {
    let python = || Command::new("python3");
    match python().args(["-c", "import tomllib"]).output() {
        Ok(output) if !output.status.success() => skip!("python3 is older than 3.11"),
        Err(error) => skip!("python3: {error}"),
        Ok(_) => {
            let output = python().arg(project().join("bench/report")).args(["--docs", "--check"]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
