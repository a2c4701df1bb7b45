//! Globs with git's rules, converted to regular expressions over bytes.
//!
//! Glob libraries differ from ignore files in small but relevant ways: in git, braces are ordinary
//! characters, a backslash escapes within brackets, brackets support classes such as `[:digit:]`,
//! and a pattern may contain any byte. `gix-glob` matches as git does, but accepts an invalid glob
//! as one that matches nothing, where an error must name the line; and a rule such as
//! `**/*a/**/*a/**/*a/b` may take it time exponential in its length. Regular expressions take
//! linear time.

use std::fmt::Write;

/// Treatment of slashes by `*`, `?` and `[...]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    /// A slash separates components; only `**` matches it.
    Separates,
    /// A slash is an ordinary byte.
    Ordinary,
}

/// Flags that the result of [`to_regex`] requires: match bytes, not characters, and let a dot match
/// any byte.
pub(crate) const FLAGS: &str = "(?s-u)";

/// Returns the unanchored regular expression that matches the same texts as `glob`.
///
/// # Errors
/// A description of the syntax error.
pub(crate) fn to_regex(glob: &[u8], slash: Slash) -> Result<String, &'static str> {
    let mut regex = String::new();
    let mut rest = glob;
    let mut at_start = true;
    while let [first, tail @ ..] = rest {
        let was_at_start = std::mem::replace(&mut at_start, *first == b'/');
        rest = match first {
            b'*' => {
                let stars = rest.iter().take_while(|&&b| b == b'*').count();
                let tail = &rest[stars..];
                match tail {
                    [b'/', tail @ ..] if stars >= 2 && was_at_start => {
                        regex.push_str("(?:.*/)?");
                        at_start = true;
                        tail
                    }
                    [] if stars >= 2 && was_at_start => {
                        regex.push_str(".+");
                        tail
                    }
                    _ => {
                        regex.push_str(if slash == Slash::Separates { "[^/]*" } else { ".*" });
                        tail
                    }
                }
            }
            b'?' => {
                regex.push_str(if slash == Slash::Separates { "[^/]" } else { "." });
                tail
            }
            b'[' => class(tail, slash, &mut regex)?,
            b'\\' => {
                let [escaped, tail @ ..] = tail else { return Err("trailing backslash") };
                push_byte(&mut regex, *escaped);
                tail
            }
            byte => {
                push_byte(&mut regex, *byte);
                tail
            }
        };
    }
    Ok(regex)
}

fn push_byte(regex: &mut String, byte: u8) {
    match byte.is_ascii_alphanumeric() {
        true => regex.push(byte.into()),
        false => write!(regex, "\\x{byte:02X}").expect("a string takes everything"),
    }
}

/// Translates `[...]`, where `rest` starts after the bracket. Returns the remaining glob.
fn class<'a>(mut rest: &'a [u8], slash: Slash, regex: &mut String) -> Result<&'a [u8], &'static str> {
    const UNCLOSED: &str = "unclosed [";
    let negated = matches!(rest, [b'!' | b'^', ..]);
    rest = &rest[usize::from(negated)..];
    let mut members = [false; 256];
    let mut is_first = true;
    loop {
        let [next, tail @ ..] = rest else { return Err(UNCLOSED) };
        if *next == b']' && !is_first {
            rest = tail;
            break;
        }
        is_first = false;
        if let Some(named) = rest.strip_prefix(b"[:") {
            let len = named.windows(2).position(|w| w == b":]").ok_or("unclosed [:")?;
            let holds = named_class(&named[..len]).ok_or("unknown character class")?;
            (0..=255).filter(holds).for_each(|b| members[usize::from(b)] = true);
            rest = &named[len + 2..];
            continue;
        }
        let (low, tail) = member(rest).ok_or(UNCLOSED)?;
        let (high, tail) = match tail {
            [b'-', b']', ..] => (low, tail),
            [b'-', tail @ ..] => member(tail).ok_or(UNCLOSED)?,
            tail => (low, tail),
        };
        (low..=high).for_each(|b| members[usize::from(b)] = true);
        rest = tail;
    }
    regex.push('[');
    for byte in 0..=255_u8 {
        if members[usize::from(byte)] != negated && (byte != b'/' || slash == Slash::Ordinary) {
            write!(regex, "\\x{byte:02X}").expect("a string takes everything");
        }
    }
    if regex.ends_with('[') {
        // An empty class matches nothing.
        regex.push_str("^\\x00-\\xFF");
    }
    regex.push(']');
    Ok(rest)
}

/// Parses a byte of a class, which may be escaped. Returns it with the remaining glob.
fn member(rest: &[u8]) -> Option<(u8, &[u8])> {
    match rest {
        [b'\\', byte, tail @ ..] | [byte, tail @ ..] => Some((*byte, tail)),
        [] => None,
    }
}

fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |b| matches!(b, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |b| matches!(b, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::bytes::Regex;

    fn matches(glob: &[u8], text: &[u8], slash: Slash) -> bool {
        let regex = to_regex(glob, slash).unwrap();
        Regex::new(&format!("{FLAGS}^(?:{regex})$")).unwrap().is_match(text)
    }

    fn matches_path(glob: &str, path: &str) -> bool {
        matches(glob.as_bytes(), path.as_bytes(), Slash::Separates)
    }

    #[test]
    fn stars_stop_at_slashes_unless_doubled() {
        for (glob, path, expected) in [
            ("a/*.txt", "a/b.txt", true),
            ("a/*.txt", "a/b/c.txt", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "ab", false),
            ("**/b", "b", true),
            ("**/b", "x/b", true),
            ("**/b", "xb", false),
            ("a/**", "a/x/y", true),
            ("a/**", "a", false),
            ("a/**", "a/", false),
            ("a**b", "axb", true),
            ("a**b", "a/b", false),
            ("**b", "a/b", false),
            ("***/b", "a/b", true),
            ("***/b", "b", true),
            ("a?b", "a/b", false),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("a.b", "axb", false),
        ] {
            assert_eq!(matches_path(glob, path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn brackets_choose_bytes() {
        for (glob, path, expected) in [
            ("[a-c]", "b", true),
            ("[!a-c]", "b", false),
            ("[^a-c]", "d", true),
            ("[!a]", "/", false),
            ("[]a]", "]", true),
            ("[!]a]", "]", false),
            (r"[\]a]", "]", true),
            (r"[\]a]", r"\", false),
            ("[a-]", "-", true),
            ("[{]", "{", true),
            ("[[:digit:]x]", "7", true),
            ("[[:digit:]x]", "x", true),
            ("[![:digit:]]", "7", false),
            ("[[]", "[", true),
            ("[z-a]", "b", false),
            ("[/]", "/", false),
        ] {
            assert_eq!(matches_path(glob, path), expected, "{glob} {path}");
        }
        assert!(matches(b"caf[\xe8-\xe9]", b"caf\xe9", Slash::Separates));
        assert!(matches(b"caf?", b"caf\xe9", Slash::Separates));
        assert!(matches(b"caf\xe9", b"caf\xe9", Slash::Separates));
        assert!(matches(b"?", b"\n", Slash::Separates));
    }

    #[test]
    fn slashes_may_be_ordinary() {
        assert!(matches(b"user.*", b"user.a/b", Slash::Ordinary));
        assert!(matches(b"a[/]b?c", b"a/b/c", Slash::Ordinary));
    }

    #[test]
    fn invalid_globs_are_refused() {
        for glob in ["[", "[a", "[]", "[a-", r"[\", r"a\", "[[:digit:]", "[[:nothing:]]", "[[:digit"] {
            assert!(to_regex(glob.as_bytes(), Slash::Separates).is_err(), "{glob}");
        }
    }
}
