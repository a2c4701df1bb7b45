//! Lists of all files of a filesystem, called canned in Android.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::manifest::fields::{id, mode, tree_path, words};
use crate::manifest::lines::LINE_MAX_LEN;
use kiln_tree::policy::Access;
use kiln_tree::{FileError, SyntaxError};

/// Metadata by path.
type AccessByPath = HashMap<Box<[u8]>, Access>;

/// Parses the list in the file `name`.
///
/// # Errors
/// The first invalid line.
pub(super) fn parse(text: &[u8], name: &str) -> Result<AccessByPath, FileError> {
    let mut files = AccessByPath::new();
    for (idx, line) in text.split(|&b| b == b'\n').enumerate() {
        add(&mut files, line.strip_suffix(b"\r").unwrap_or(line)).map_err(|error| error.at(name, idx))?;
    }
    Ok(files)
}

fn add(files: &mut AccessByPath, line: &[u8]) -> Result<(), SyntaxError> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    if line.len() > LINE_MAX_LEN {
        return Err(SyntaxError::new("line", line, format!("longer than {LINE_MAX_LEN} bytes")));
    }
    let (path, rest) = path(line).ok_or_else(|| SyntaxError::new("path", line, "unclosed quotes"))?;
    let fields = words(rest);
    let [uid, gid, permissions, more @ ..] = &fields[..] else {
        return Err(SyntaxError::new("line", line, "expected 4 fields: PATH UID GID MODE"));
    };
    let mut access =
        Access { uid: id("uid", uid)?, gid: id("gid", gid)?, permissions: mode(permissions)?, capabilities: 0 };
    for field in more {
        match field.strip_prefix(b"capabilities=") {
            Some(bits) => access.capabilities = capabilities(bits)?,
            // Labels come from file_contexts, as in Android's own tools.
            None if field.starts_with(b"selabel=") => {}
            None => return Err(SyntaxError::new("field", field, "expected capabilities=... or selabel=...")),
        }
    }
    match files.entry(tree_path(path)) {
        Entry::Vacant(entry) => drop(entry.insert(access)),
        Entry::Occupied(entry) if *entry.get() == access => {}
        Entry::Occupied(_) => return Err(SyntaxError::new("path", path, "listed twice, with different values")),
    }
    Ok(())
}

/// Splits a line into its path and the rest.
fn path(line: &[u8]) -> Option<(&[u8], &[u8])> {
    match line {
        // The path of the root is empty.
        [b' ', ..] => Some((b"", line)),
        [quote @ (b'"' | b'\''), rest @ ..] => {
            let end = rest.iter().position(|b| b == quote)?;
            Some((&rest[..end], &rest[end + 1..]))
        }
        _ => {
            let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
            Some((&line[..end], &line[end..]))
        }
    }
}

/// Parses a number; hexadecimal with the prefix `0x`.
fn capabilities(bits: &[u8]) -> Result<u64, SyntaxError> {
    let text = str::from_utf8(bits).unwrap_or_default();
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| SyntaxError::new("capabilities", bits, "not a number of 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_files_in_several_ways() {
        let text = b"  0 0 755 selabel=u:object_r:rootfs:s0 capabilities=0x0\n\
            system/bin 0 2000 0751\n\n\
            /system/bin/run-as 0 2000 750 capabilities=0xc0\r\n\
            \"system/a b\" 1000 root 644 capabilities=12\n";
        let list = parse(text, "l").unwrap();
        let get = |path: &[u8]| list.get(path).copied();
        let access = |uid, gid, permissions, capabilities| Some(Access { uid, gid, permissions, capabilities });
        assert_eq!(get(b""), access(0, 0, 0o755, 0));
        assert_eq!(get(b"system/bin"), access(0, 2000, 0o751, 0));
        assert_eq!(get(b"system/bin/run-as"), access(0, 2000, 0o750, 0xC0));
        assert_eq!(get(b"system/a b"), access(1000, 0, 0o644, 12));
        assert_eq!(get(b"system"), None);
    }

    #[test]
    fn errors_name_line_and_field() {
        for (line, error) in [
            ("a 0 0", "l, line 2: line `a 0 0`: expected 4 fields: PATH UID GID MODE"),
            ("a 0 shell 755", "l, line 2: gid `shell`: write it as a number; root is the only known name"),
            ("a 0 0 755 caps=1", "l, line 2: field `caps=1`: expected capabilities=... or selabel=..."),
            ("a 0 0 755 capabilities=x", "l, line 2: capabilities `x`: not a number of 64 bits"),
            ("'a 0 0 755", "l, line 2: path `'a 0 0 755`: unclosed quotes"),
            ("x 0 0 755", "l, line 2: path `x`: listed twice, with different values"),
        ] {
            assert_eq!(parse(format!("x 0 0 644\n{line}\n").as_bytes(), "l").unwrap_err().to_string(), error);
        }
    }
}
