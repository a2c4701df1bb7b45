//! Rules that exclude paths, in the language of gitignore(5).

use regex::bytes::{RegexSet, RegexSetBuilder};
use std::io;

use super::glob::{FLAGS, Slash, to_regex};
use crate::syntax::{FileError, SyntaxError, regex_reason};

/// Maximum memory in bytes of the compiled rules of one text; enough for some thousand rules.
pub(crate) const COMPILED_MAX_LEN: usize = 16 << 20;

/// A rule of an ignore file.
///
/// A glob without a slash matches a name at any depth; any other matches a path relative to the
/// directory of the rules. `*`, `?` and `[...]` do not match slashes, `**` does. A slash at the end
/// restricts the rule to directories. A leading exclamation mark includes what an earlier rule
/// excluded.
#[derive(Clone, Debug)]
pub struct Rule {
    regex: String,
    about: GlobScope,
    verdict: Verdict,
}

/// Entries to which a glob applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobScope {
    Everything,
    Directories,
}

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Exclude,
    Include,
}

impl Rule {
    /// Parses a rule. Unlike in a file, trailing spaces are part of the pattern and `#` starts no
    /// comment.
    ///
    /// # Errors
    /// A pattern that is empty or not a glob.
    pub fn new(pattern: &[u8]) -> Result<Self, SyntaxError> {
        let refuse = |reason: &str| SyntaxError::new("glob", pattern, reason);
        let (verdict, glob) = match pattern.strip_prefix(b"!") {
            Some(glob) => (Verdict::Include, glob),
            None => (Verdict::Exclude, pattern),
        };
        let (regex, about) = anchored(glob).map_err(refuse)?;
        Ok(Self { regex, about, verdict })
    }
}

/// Returns the regular expression of a glob in the language of rules, and the entries to which it
/// applies.
///
/// # Errors
/// A description of the syntax error.
pub(crate) fn anchored(glob: &[u8]) -> Result<(String, GlobScope), &'static str> {
    let (about, glob) = match glob.strip_suffix(b"/") {
        Some(glob) => (GlobScope::Directories, glob),
        None => (GlobScope::Everything, glob),
    };
    let front = if glob.contains(&b'/') { "" } else { "(?:.*/)?" };
    let glob = glob.strip_prefix(b"/").unwrap_or(glob);
    if glob.is_empty() {
        return Err("empty pattern");
    }
    let regex = to_regex(glob, Slash::Separates)?;
    Ok((format!("{FLAGS}^{front}{regex}$"), about))
}

/// Ordered set of rules. The last rule that matches a path decides.
#[derive(Clone, Debug)]
pub struct Rules {
    globs: RegexSet,
    rules: Vec<Rule>,
}

impl Rules {
    /// Compiles rules in this order.
    ///
    /// # Errors
    /// Rules that need more memory than allowed.
    pub fn new(rules: Vec<Rule>) -> Result<Self, SyntaxError> {
        let globs = RegexSetBuilder::new(rules.iter().map(|rule| &rule.regex)).size_limit(COMPILED_MAX_LEN).build();
        let globs = globs.map_err(|error| {
            let count = format!("{} of them", rules.len());
            SyntaxError::new("rules", count.as_bytes(), regex_reason(&error))
        })?;
        Ok(Self { globs, rules })
    }

    /// Returns true if there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Parses the rules in a file called `name`, one per line. Blank lines and lines that start
    /// with `#` are ignored, and so are trailing spaces without a backslash before them.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        let mut rules = Vec::new();
        let mut last = 0;
        for (idx, line) in lines(text) {
            rules.push(Rule::new(line).map_err(|error| error.at(name, idx))?);
            last = idx;
        }
        Self::new(rules).map_err(|error| error.at(name, last))
    }

    /// Returns the verdict for `path`, which is relative to the directory of the rules, or `None`
    /// if no rule matches. `is_dir` is called only if needed.
    ///
    /// # Errors
    /// Those of `is_dir`.
    pub(super) fn verdict(&self, path: &[u8], is_dir: &dyn Fn() -> io::Result<bool>) -> io::Result<Option<Verdict>> {
        for idx in self.globs.matches(path).iter().rev() {
            let rule = &self.rules[idx];
            if rule.about == GlobScope::Everything || is_dir()? {
                return Ok(Some(rule.verdict));
            }
        }
        Ok(None)
    }
}

/// Returns the lines of a file that are not blank or comments, as git reads them, with their
/// indexes from 0.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines =
        text.split(|&b| b == b'\n').map(|line| without_trailing_spaces(line.strip_suffix(b"\r").unwrap_or(line)));
    lines.enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut len = 0;
    let mut idx = 0;
    while idx < line.len() {
        // An escaped byte is never trailing space.
        let step = if line[idx] == b'\\' { 2 } else { 1 };
        if line[idx] != b' ' {
            len = (idx + step).min(line.len());
        }
        idx += step;
    }
    &line[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats verdicts: `-` excluded, `+` included, blank for no rule. Paths with a slash at the
    /// end are directories.
    fn verdicts(rules: &str, paths: &[&str]) -> String {
        let rules = Rules::parse(rules.as_bytes(), "test").unwrap();
        let verdict = |path: &&str| {
            let is_dir = path.ends_with('/');
            match rules.verdict(path.trim_end_matches('/').as_bytes(), &|| Ok(is_dir)).unwrap() {
                None => ' ',
                Some(Verdict::Exclude) => '-',
                Some(Verdict::Include) => '+',
            }
        };
        paths.iter().map(verdict).collect()
    }

    #[test]
    fn a_slash_ties_a_rule_to_its_directory() {
        let paths = ["a", "b/a", "b/a/", "a/b", "x/a/b"];
        assert_eq!(verdicts("a", &paths), "---  ");
        assert_eq!(verdicts("/a", &paths), "-    ");
        assert_eq!(verdicts("a/", &paths), "  -  ");
        assert_eq!(verdicts("a/b", &paths), "   - ");
        assert_eq!(verdicts("**/a/b", &paths), "   --");
        assert_eq!(verdicts("**", &paths), "-----");
        assert_eq!(verdicts("/*", &paths), "-    ");
    }

    #[test]
    fn the_last_rule_decides() {
        assert_eq!(verdicts("*.log\n!keep.log\n", &["a.log", "keep.log", "x/keep.log", "b"]), "-++ ");
        assert_eq!(verdicts("!keep.log\n*.log", &["keep.log"]), "-");
        assert_eq!(verdicts("*\n!keep/", &["keep", "keep/"]), "-+");
    }

    #[test]
    fn lines_are_as_git_reads_them() {
        assert_eq!(
            verdicts("\u{feff}a\r\n#b\n\n  \nc  \nd\\ \n\\#e\n\\!f\n", &["a", "#b", "c", "d ", "#e", "!f"]),
            "- ----"
        );
        assert_eq!(verdicts("a\\\\ ", &["a\\", "a\\ "]), "- ");
        assert_eq!(verdicts("", &["a"]), " ");
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| Rules::parse(text.as_bytes(), "my.rules").unwrap_err().to_string();
        assert_eq!(error("a\n\n[b\n"), "my.rules, line 3: glob `[b`: unclosed [");
        assert_eq!(error("/"), "my.rules, line 1: glob `/`: empty pattern");
        assert_eq!(error("!"), "my.rules, line 1: glob `!`: empty pattern");
        assert_eq!(error("a\\"), "my.rules, line 1: glob `a\\`: trailing backslash");
        let many: String = (0..60_000).map(|idx| format!("*{idx}*[a-z]?\n")).collect();
        let refused = Rules::parse(many.as_bytes(), "many").err().map(|error| error.source.field);
        assert_eq!(refused, Some("rules"), "memory is bounded");
    }
}
