//! Resolution of `..` in paths of members.

use std::borrow::Cow;

/// Returns `path` with each `..` and the name before it removed. A path that leads out of the root
/// is returned unchanged; the tree refuses it.
pub(super) fn without_steps_up(path: &[u8]) -> Cow<'_, [u8]> {
    let names = || path.split(|&byte| byte == b'/');
    if !names().any(|name| name == b"..") {
        return Cow::Borrowed(path);
    }
    let mut kept = Vec::new();
    for name in names().filter(|name| !matches!(*name, b"" | b".")) {
        match name {
            b".." if kept.pop().is_none() => return Cow::Borrowed(path),
            b".." => {}
            name => kept.push(name),
        }
    }
    let mut cleaned = kept.join(&b'/');
    // A slash at the end makes a v7 member a directory.
    cleaned.extend(path.ends_with(b"/").then_some(b'/'));
    Cow::Owned(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_up_are_taken_within_the_root() {
        let cases: [(&str, &str); 9] = [
            ("a/b", "a/b"),
            ("./a//b/", "./a//b/"),
            ("a/../b", "b"),
            ("a/./b/../../c/d", "c/d"),
            ("/a/../b/", "b/"),
            ("a/..", ""),
            ("../a", "../a"),
            ("a/../../a", "a/../../a"),
            ("a/..b/...", "a/..b/..."),
        ];
        for (path, expected) in cases {
            assert_eq!(without_steps_up(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
