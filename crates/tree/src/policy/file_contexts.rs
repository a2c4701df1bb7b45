//! SELinux labels by path, from the text format of file_contexts (see selabel_file(5)).

use crate::{Kind, Xattr};
use kiln_format::inode::FileType;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::HashMap;

use super::xattrs::set_xattr;
use crate::filter::glob::FLAGS;
use crate::syntax::{FileError, SyntaxError, regex_reason};

const XATTR_NAME: &[u8] = b"security.selinux";

/// SELinux labels for a tree.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Labels by path.
    pub contexts: FileContexts,
    /// Mount point of the image, to which the looked-up paths are relative. Empty or `/` for the
    /// root.
    pub mount_point: Vec<u8>,
}

/// Entries of a file_contexts file.
///
/// The rules are those of libselinux. A path without special characters takes precedence over all
/// expressions; of several equal paths the first is used. Of expressions the last match is used.
/// Entries with another file type are ignored. Expressions are anchored at both ends.
/// Back-references and look-around are refused.
#[derive(Clone, Debug, Default)]
pub struct FileContexts {
    specs: Vec<Spec>,
    /// Indexes of specs without special characters, by path.
    exact: HashMap<Vec<u8>, Vec<usize>>,
    /// Indexes of all others, by the directory that contains every match, so that a lookup tries
    /// only a few of thousands.
    by_dir: HashMap<Vec<u8>, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct Spec {
    /// Literal start of every matching path.
    start: Vec<u8>,
    /// Expression; `None` if `start` is the whole path.
    regex: Option<Regex>,
    /// File type; `None` matches any.
    file_type: Option<FileType>,
    /// Label; `None` for no label.
    context: Option<Box<[u8]>>,
}

impl FileContexts {
    /// Parses a file called `name`. Each line has an expression, an optional type (`--`, `-d`, `-l`
    /// and so on) and a context or `<<none>>`.
    ///
    /// # Errors
    /// The first invalid line and its field.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        let mut contexts = Self::default();
        for (idx, line) in text.split(|&b| b == b'\n').enumerate() {
            contexts.add_line(line).map_err(|error| error.at(name, idx))?;
        }
        Ok(contexts)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), SyntaxError> {
        let fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let fields: Vec<&[u8]> = fields.collect();
        let (expression, file_type, context) = match fields[..] {
            [] | [[b'#', ..], ..] => return Ok(()),
            [expression, context] => (expression, None, context),
            [expression, file_type, context] => (expression, Some(parse_type(file_type)?), context),
            _ => return Err(SyntaxError::new("line", line, "expected 2 or 3 fields: expression, type, context")),
        };
        let (start, is_exact) = literal_start(expression);
        let idx = self.specs.len();
        let regex = (!is_exact).then(|| compile(expression)).transpose()?;
        let places = if is_exact { &mut self.exact } else { &mut self.by_dir };
        let key = if is_exact { start.clone() } else { directory(&start).to_vec() };
        places.entry(key).or_default().push(idx);
        self.specs.push(Spec { start, regex, file_type, context: parse_context(context)? });
        Ok(())
    }

    /// Returns the context of the file at the absolute `path`, or `None` if it has no label.
    pub fn label(&self, path: &[u8], file_type: FileType) -> Option<&[u8]> {
        let fits = |idx: &&usize| self.specs[**idx].matches(path, file_type);
        let exact = self.exact.get(path).and_then(|specs| specs.iter().find(fits));
        let idx = exact.or_else(|| {
            let dirs = directories(path).filter_map(|dir| self.by_dir.get(dir));
            dirs.filter_map(|specs| specs.iter().rev().find(fits)).max()
        });
        self.specs[*idx?].context.as_deref()
    }
}

impl Spec {
    fn matches(&self, path: &[u8], file_type: FileType) -> bool {
        self.file_type.is_none_or(|wanted| wanted == file_type)
            && path.starts_with(&self.start)
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(path))
    }
}

impl Labels {
    /// Sets the label of a node at `path`, relative to the root of the tree, and removes an old
    /// one.
    pub(super) fn apply(&self, path: &[u8], kind: &Kind, xattrs: &mut Vec<Xattr>) {
        xattrs.retain(|xattr| &*xattr.name != XATTR_NAME);
        let components = self.mount_point.split(|&b| b == b'/').chain(path.split(|&b| b == b'/'));
        let components = components.filter(|component| !component.is_empty());
        let mut absolute: Vec<u8> = components.flat_map(|component| [b"/", component].concat()).collect();
        if absolute.is_empty() {
            absolute.push(b'/');
        }
        if let Some(context) = self.contexts.label(&absolute, kind.file_type()) {
            // The kernel stores labels with a zero byte at the end.
            let value = [context, b"\0"].concat();
            set_xattr(xattrs, Xattr { name: XATTR_NAME.into(), value: value.into() });
        }
    }
}

fn parse_type(field: &[u8]) -> Result<FileType, SyntaxError> {
    Ok(match field {
        b"--" => FileType::Regular,
        b"-d" => FileType::Directory,
        b"-c" => FileType::CharDevice,
        b"-b" => FileType::BlockDevice,
        b"-p" => FileType::Fifo,
        b"-l" => FileType::Symlink,
        b"-s" => FileType::Socket,
        _ => return Err(SyntaxError::new("type", field, "not one of --, -d, -c, -b, -p, -l and -s")),
    })
}

fn parse_context(field: &[u8]) -> Result<Option<Box<[u8]>>, SyntaxError> {
    match field {
        b"<<none>>" => Ok(None),
        _ if field.split(|&b| b == b':').filter(|part| !part.is_empty()).count() < 3 || field.contains(&0) => {
            Err(SyntaxError::new("context", field, "neither <<none>> nor USER:ROLE:TYPE, perhaps with a level"))
        }
        _ => Ok(Some(field.into())),
    }
}

fn compile(expression: &[u8]) -> Result<Regex, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("expression", expression, reason);
    let text = str::from_utf8(expression).map_err(|_| refuse("not UTF-8"))?;
    let regex = RegexBuilder::new(&format!("{FLAGS}^(?:{text})$")).build();
    regex.map_err(|error| refuse(&regex_reason(&error)))
}

/// Returns the literal start of all paths that an expression matches, and true if it is the whole
/// expression.
fn literal_start(expression: &[u8]) -> (Vec<u8>, bool) {
    let mut start = Vec::new();
    let mut rest = expression;
    loop {
        let (byte, tail) = match rest {
            [] => return (start, true),
            [b'\\', escaped, tail @ ..] if escaped.is_ascii_punctuation() => (*escaped, tail),
            [b'\\' | b'.' | b'^' | b'$' | b'?' | b'*' | b'+' | b'|' | b'[' | b'(' | b'{', ..] => break,
            [byte, tail @ ..] => (*byte, tail),
        };
        if let [b'?' | b'*' | b'{', ..] = tail {
            // The character is optional; it may consist of several bytes.
            if !byte.is_ascii() {
                while start.pop_if(|byte| !byte.is_ascii()).is_some() {}
            }
            break;
        }
        start.push(byte);
        rest = tail;
    }
    if has_alternatives(expression) {
        start.clear();
    }
    (start, false)
}

/// Returns true if there is a `|` outside all parentheses: then the literal start does not apply to
/// all matches.
fn has_alternatives(expression: &[u8]) -> bool {
    let (mut depth, mut in_class) = (0_usize, false);
    let mut bytes = expression.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b']' => in_class = false,
            _ if in_class => {}
            b'[' => {
                in_class = true;
                // A bracket that comes first does not close the class.
                let rest = bytes.as_slice();
                let negation = usize::from(rest.first() == Some(&b'^'));
                let first = usize::from(rest.get(negation) == Some(&b']'));
                bytes = rest[negation + first..].iter();
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Returns the part of `path` before the last slash.
fn directory(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&b| b == b'/').map_or(b"", |slash| &path[..slash])
}

/// Returns all directories above `path`; the root is the empty path.
fn directories(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(slash, _)| &path[..slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(contexts: &FileContexts, path: &str, file_type: FileType) -> Option<String> {
        contexts.label(path.as_bytes(), file_type).map(|context| str::from_utf8(context).unwrap().to_owned())
    }

    /// Returns the type in the label of a regular file, `none` for no label.
    fn labels(text: &str, paths: &[&str]) -> Vec<String> {
        let contexts = FileContexts::parse(text.as_bytes(), "test").unwrap();
        let type_of = |label: String| label.split(':').nth(2).unwrap().to_owned();
        paths.iter().map(|path| label(&contexts, path, FileType::Regular).map_or("none".into(), type_of)).collect()
    }

    #[test]
    fn the_last_match_decides_and_plain_paths_before_all() {
        let text = "\
# a comment
/.*\t\tu:r:default:s0

/etc/passwd u:r:passwd:s0
/etc(/.*)?\tu:r:etc:s0
/etc/x\\.conf u:r:x:s0
/etc/.*\\.conf u:r:conf:s0
/etc/secret(/.*)? <<none>>
";
        let paths = ["/", "/var", "/etc", "/etc/passwd", "/etc/passwd2", "/etc/x.conf", "/etc/y.conf", "/etc/secret/a"];
        assert_eq!(labels(text, &paths), ["default", "default", "etc", "passwd", "etc", "x", "conf", "none"]);
    }

    #[test]
    fn of_equal_paths_the_first_decides() {
        assert_eq!(labels("/x u:r:a\n/x -- u:r:b\n/x u:r:c\n", &["/x"]), ["a"]);
        assert_eq!(labels("/x -d u:r:a\n/x -- u:r:b\n/x u:r:c\n", &["/x"]), ["b"]);
        assert_eq!(labels("/x? u:r:a\n/x* u:r:b\n", &["/x"]), ["b"]);
    }

    #[test]
    fn types_are_looked_at() {
        let text = b"/dev/.* u:r:any\n/dev/.* -b u:r:block\n/dev/tty -c u:r:tty\n/dev -d u:r:dir\n/dev/d -- u:r:file";
        let contexts = FileContexts::parse(text, "test").unwrap();
        for (path, file_type, expected) in [
            ("/dev/sda", FileType::BlockDevice, Some("u:r:block")),
            ("/dev/sda", FileType::CharDevice, Some("u:r:any")),
            ("/dev/tty", FileType::CharDevice, Some("u:r:tty")),
            ("/dev/tty", FileType::Symlink, Some("u:r:any")),
            ("/dev/d", FileType::Directory, Some("u:r:any")),
            ("/dev", FileType::Directory, Some("u:r:dir")),
            ("/dev", FileType::Socket, None),
        ] {
            assert_eq!(label(&contexts, path, file_type).as_deref(), expected, "{path} {file_type:?}");
        }
    }

    #[test]
    fn expressions_are_anchored_and_about_bytes() {
        let text = "/a u:r:a\n/l(ib)?/.+\\.so(\\.[^/]*)? u:r:lib\n/h/[^/]*/x u:r:home\n";
        let paths = ["/a/b", "/xa", "/lib/x.so.1", "/l/x.so", "/lib/x.so/y", "/h/u/x", "/h/u/v/x"];
        assert_eq!(labels(text, &paths), ["none", "none", "lib", "lib", "none", "home", "none"]);
        let contexts = FileContexts::parse(b"/b/.* u:r:b", "test").unwrap();
        assert!(contexts.label(b"/b/\xff\n", FileType::Regular).is_some());
    }

    #[test]
    fn literal_starts_hide_no_match() {
        for (expression, path) in [
            ("/a/b|/c/d", "/c/d"),
            ("/a(b)?|/c", "/c"),
            ("/a[(]|/c", "/c"),
            ("/a[]|(]|/c", "/c"),
            ("/a\\(|/c", "/c"),
            ("/ab?", "/a"),
            ("/ab*c", "/ac"),
            ("/ab{0,1}", "/a"),
            ("/a\\.?", "/a"),
            ("/\u{e9}?x", "/x"),
            ("/(a|b)/c", "/b/c"),
        ] {
            assert_eq!(labels(&format!("{expression} u:r:t"), &[path]), ["t"], "{expression}");
        }
    }

    #[test]
    fn the_tree_of_directories_changes_nothing() {
        let lines = ["/.*", "/a.*", "/a/b.*", "/a/b/.*", "/a/(b/)?c", "/a/b/c", "/a/b|/x", "(/a)?/b", "/a/.*/c"];
        let paths = ["/", "/a", "/a/b", "/a/b/c", "/a/c", "/x", "/b", "/a/b/d", "/a/x/c", "/ab"];
        for turn in 0..lines.len() {
            let turned: Vec<&str> = (0..lines.len()).map(|idx| lines[(idx + turn) % lines.len()]).collect();
            let text: String = turned.iter().enumerate().map(|(idx, line)| format!("{line} u:r:t{idx}\n")).collect();
            let expected = paths.map(|path| {
                let matches = |line: &&str| Regex::new(&format!("^(?:{line})$")).unwrap().is_match(path.as_bytes());
                let exact = turned.iter().position(|line| *line == path);
                let idx = exact.or(turned.iter().rposition(matches));
                idx.map_or("none".to_owned(), |idx| format!("t{idx}"))
            });
            assert_eq!(labels(&text, &paths), expected);
        }
    }

    #[test]
    fn labels_replace_those_of_the_source() {
        let old = || vec![Xattr { name: XATTR_NAME.into(), value: b"old".as_slice().into() }];
        let contexts = FileContexts::parse(b"/sys -d u:r:root\n/sys/a u:r:a", "test").unwrap();
        for (mount_point, path, kind, expected) in [
            ("/sys", "", Kind::Directory(Box::default()), Some("u:r:root\0")),
            ("sys/", "a", Kind::Fifo, Some("u:r:a\0")),
            ("/", "sys/a", Kind::Fifo, Some("u:r:a\0")),
            ("", "a", Kind::Fifo, None),
        ] {
            let labels = Labels { contexts: contexts.clone(), mount_point: mount_point.into() };
            let mut xattrs = old();
            labels.apply(path.as_bytes(), &kind, &mut xattrs);
            let value = xattrs.first().map(|xattr| str::from_utf8(&xattr.value).unwrap());
            assert_eq!(value, expected, "{mount_point} {path}");
        }
    }

    #[test]
    fn errors_name_line_and_field() {
        let error = |text: &str| FileContexts::parse(text.as_bytes(), "fc").unwrap_err().to_string();
        assert_eq!(error("/a u:r:t\n/b -x u:r:t"), "fc, line 2: type `-x`: not one of --, -d, -c, -b, -p, -l and -s");
        assert_eq!(error("/(a u:r:t"), "fc, line 1: expression `/(a`: unclosed group");
        assert!(error("/a(?=b) u:r:t").contains("look-around"));
        assert!(error("/(a)\\1 u:r:t").contains("backreferences"));
        assert!(error("/a").starts_with("fc, line 1: line `/a`: expected 2 or 3 fields"));
        assert!(error("/a -- u:r:t x").contains("2 or 3 fields"));
        assert!(error("/a u:r").starts_with("fc, line 1: context `u:r`"));
        assert!(error("/a{9}{999}{999} u:r:t").contains("size limit"));
    }
}
